"""A model of a catalog, where its files don't matter."""

from __future__ import annotations

from appliance.catalog import ModelRef
from appliance.catalog.entries import Model


def ref_of(sha256: str, *, use: tuple[str, ...] = ("chat",)) -> ModelRef:
    """`small:Q4_1` of one file with this hash."""
    file = {"name": "small.gguf", "size": 1_000, "sha256": sha256}
    variant = {
        "quant": "Q4_1",
        "source": {"kind": "file", "path": "/nonexistent/small.gguf"},
        "files": [file],
    }
    words = {"id": "small", "family": "small", "name": "Small", "license": "apache-2.0"}
    model = Model.model_validate({**words, "context": 4_096, "use": use, "variants": [variant]})
    return ModelRef(model, model.variants[0])
