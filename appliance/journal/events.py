"""What happened to engines: loaded, crashed, evicted and the like. No text of a request."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import asdict, dataclass
from typing import Any

from appliance.text import clean_line

KEPT_EVENTS = 5_000
_PRUNE_EVERY = 100
_LONGEST = 2_000
"""Characters of one text."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    number: int
    """Grows with each event and never repeats."""
    at: float
    """Unix seconds."""
    kind: str
    """`loaded unloaded evicted crashed restarted failed recycled replanned saved restored` and the like."""
    ref: str | None
    """The model; None when it is about the whole machine."""
    text: str
    """One sentence for people."""
    detail: str | None
    """Why, or what to do."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def insert(db: sqlite3.Connection, kind: str, ref: str | None, text: str, detail: str | None) -> None:
    """Keep one, and no more than KEPT_EVENTS (a few more between two clean-ups)."""
    number = db.execute(
        "INSERT INTO events (at, kind, ref, text, detail) VALUES (?, ?, ?, ?, ?)",
        (time.time(), kind, ref, _short(text), None if detail is None else _short(detail)),
    ).lastrowid
    if number is not None and number % _PRUNE_EVERY == 0:
        prune(db)


def prune(db: sqlite3.Connection) -> None:
    """Only the newest stay."""
    db.execute(
        "DELETE FROM events WHERE number <= (SELECT COALESCE(MAX(number), 0) FROM events) - ?", (KEPT_EVENTS,)
    )


def newest(db: sqlite3.Connection, limit: int, after: int) -> tuple[Event, ...]:
    """The newest `limit` with a number above `after`, oldest first."""
    found = db.execute(
        "SELECT number, at, kind, ref, text, detail FROM events"
        " WHERE number > ? ORDER BY number DESC LIMIT ?",
        (after, limit),
    ).fetchall()
    return tuple(Event(*row) for row in reversed(found))


def _short(text: str) -> str:
    return clean_line(text, _LONGEST)
