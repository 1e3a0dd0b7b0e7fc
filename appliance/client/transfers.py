"""The rows of the downloads. None means unknown; sizes are bytes, durations as their name says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from appliance.client.fields import Document, maybe, text


@dataclass(frozen=True, slots=True)
class ErrorRow(Document):
    """An error that stands in a document: what happened, why, what to do next."""

    code: str | None
    message: str | None
    cause: str | None
    hint: str | None


def _damages(value: object) -> tuple[Mapping[str, object], ...] | None:
    """What was wrong with each file: objects as `models verify --json` shows them, their texts cleaned."""
    if not isinstance(value, list):
        return None
    kept = ("file", "kind", "text", "ranges", "chunks", "of_chunks", "action", "kept")
    found = []
    for item in value:
        if isinstance(item, dict):
            pairs = ((name, item.get(name)) for name in kept)
            found.append({name: text(one) if isinstance(one, str) else one for name, one in pairs})
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DownloadRow(Document):
    """One transfer; bytes, bytes per second, seconds.

    `phase` is waiting, checking disk, downloading, extracting, verifying, repairing, paused, done, failed,
    cancelled, or a word of a newer daemon. `place` is that in the queue, `limit` bytes per second at most.
    Of a repair that is done: `mended` is False when all was whole, `damage` what was wrong.
    """

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {
        "error": maybe(ErrorRow),
        "damage": _damages,
    }

    id: str
    ref: str
    file: str | None
    phase: str
    done: int | None
    total: int | None
    rate: float | None
    eta_s: float | None
    resumable: bool | None
    paused: bool | None
    finished: bool | None
    place: int | None
    limit: int | None
    repair: bool | None
    fetched: int | None
    mended: bool | None
    damage: tuple[Mapping[str, object], ...] | None
    message: str | None
    error: ErrorRow | None

    @property
    def ended(self) -> bool:
        """Nothing more happens to it by itself, and it is not paused. The daemon says so."""
        if self.finished is not None:
            return self.finished
        return self.phase in ("done", "failed", "cancelled")  # an older daemon, or another one


@dataclass(frozen=True, slots=True)
class StartRow(Document):
    """What asking for a download led to; `how` is new, joined or resumed, `limit` the one in force."""

    id: str
    ref: str
    how: str | None
    limit: int | None
