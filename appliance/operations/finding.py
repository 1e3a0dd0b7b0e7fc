"""One line of `doctor`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination."""

    check: str
    level: Level
    detail: str
    todo: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
