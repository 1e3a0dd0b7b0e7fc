"""What a model that somebody else named is called here. Pure: the header decides, names only help."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from appliance import hub
from appliance.gguf import Header
from appliance.operations.describe import describe, id_of
from appliance.store.caches import Candidate

_WIDTH = re.compile(r"[A-Z]+\d+")
_LONGEST_QUANT = 32
_LONGEST_ID = 80
_SAYS_NOTHING = re.compile(
    r"(?:ggml-)?(?:model|file|gguf|ggml|download|unnamed|latest|unsloth|sha256)?(?:-?[0-9a-f]{16,})?"
)
_NO_MODEL = {"adapter": "a LoRA adapter", "mmproj": "a projector", "imatrix": "calibration data"}


def no_model(header: Header) -> str | None:
    """What a GGUF file is that is no language model; None for a model."""
    kind = header.metadata.get("general.type")
    if isinstance(kind, str) and kind in _NO_MODEL:
        return _NO_MODEL[kind]
    return "a projector" if header.arch == "clip" else None


def quant_of(headers: Sequence[Header], name: str) -> str:
    """The quantisation of a model with these parts, whose first file has this name.

    What the header states counts, else the type of most bytes. A name may say it finer (`UD-Q4_K_XL`), as
    long as it means the same width.
    """
    stated, said = describe(headers[0], "").quant or _most_of(headers), hub.label_of(name)
    if said is not None and (stated is None or _width(said) == _width(stated)):
        return said[:_LONGEST_QUANT]
    return stated or "unknown"


def _most_of(headers: Sequence[Header]) -> str | None:
    n_bytes: Counter[str] = Counter()
    for header in headers:
        for tensor in header.tensors:
            n_bytes[tensor.type_name] += tensor.n_bytes
    return n_bytes.most_common(1)[0][0].upper() if n_bytes else None


def _width(quant: str) -> str:
    """`Q4` of `UD-Q4_K_XL`, `IQ4` of `IQ4_XS`: what two names must share to mean the same."""
    found = _WIDTH.search(quant.removeprefix("UD-"))
    return found[0] if found else quant


def model_id_of(candidate: Candidate, header: Header) -> str:
    """A model id: Ollama's own name, else what the file is called, else what its header says."""
    said = candidate.main.file
    if candidate.origin == "ollama":
        # registry and owner go: model and tag say what it is
        said = candidate.name.rpartition("/")[2].removesuffix(":latest").replace(":", "-")
    for text in (hub.stem_of(said), header.name or "", (candidate.repo or "").rpartition("/")[2]):
        found = id_of(text.removesuffix("-GGUF"))[:_LONGEST_ID].rstrip("-._")
        if text and not _SAYS_NOTHING.fullmatch(found):
            return found
    return "imported"


def params_of(headers: Sequence[Header]) -> float | None:
    """Number of weights in all parts; None when the headers list no tensor."""
    n = sum(math.prod(tensor.shape) for header in headers for tensor in header.tensors)
    return float(n) if n else None
