"""Real model files as what stubs are made of."""

from __future__ import annotations

from pathlib import Path

from appliance.gguf import StubPart


def stub_parts(path: Path) -> tuple[StubPart, ...]:
    """A model in one file."""
    return (StubPart(path.name, path, path.stat().st_size),)
