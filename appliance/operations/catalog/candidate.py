"""What `models add` found at a source, before it is an entry."""

from __future__ import annotations

from dataclasses import dataclass, field

from appliance.catalog import File, Pin, Source
from appliance.operations.describe import Description


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user stated on the command line."""

    model_id: str | None = None
    sha256: str | None = None
    size: int | None = None
    quant: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """Files with their pins, and what the first one says of itself."""

    source: Source
    files: tuple[File, ...]
    pin: Pin
    description: Description
    stated_by: str
    """Who stated size and hash, for people."""
    license: str | None = None
    """As the source states it beside the file."""
    page: str | None = None
    """Where people can read about it; no secrets."""
    params: float | None = None
    hints: tuple[str, ...] = field(default=())
    pin_host: str | None = None
    """As in `Variant`."""
