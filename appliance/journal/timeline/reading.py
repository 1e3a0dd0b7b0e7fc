"""The timeline read from the tables: by the daemon, and from the file beside it or without one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from appliance.journal import reader
from appliance.journal.events import Event
from appliance.journal.rows import Row
from appliance.journal.timeline.minutes import MINUTE, minute_of
from appliance.journal.timeline.table import DECISION_COLUMNS, points_in
from appliance.journal.timeline.values import Decided, Entry, Point, moment_of

MOST = 20_000
"""Entries of one answer."""
_TIES = 64
"""More entries than these never have the very same time."""
_SINCE_VERSION = 4
_ROW_COLUMNS = tuple(f.name for f in fields(Row))


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the timeline."""

    entries: tuple[Entry, ...]
    """In the order of time."""
    more: bool
    """There is more in the span: before these, or after them where it was asked from the front."""


def timeline_in(
    db: sqlite3.Connection, since: float, until: float, limit: int, *, newest: bool = True
) -> Page:
    """The newest `limit` entries from `since` on and before `until`, or the first ones.

    Seconds where they are kept, else minutes. A few more come where several have the same time, so that who
    goes on after the last one's (or before the first one's) misses none.
    """
    limit = max(1, min(limit, MOST))
    sources: tuple[Iterable[Entry], ...] = (
        _samples(db, since, until, limit + _TIES, newest),
        (
            _decided(row)
            for row in _rows(db, "decisions", "at", DECISION_COLUMNS, since, until, limit, newest)
        ),
        (Event(*row) for row in _rows(db, "events", "at", _EVENT_COLUMNS, since, until, limit, newest)),
        (Row(*row) for row in _rows(db, "requests", "started_at", _ROW_COLUMNS, since, until, limit, newest)),
    )
    found = sorted((entry for source in sources for entry in source), key=moment_of, reverse=newest)
    cut = min(limit, len(found))
    while cut < len(found) and moment_of(found[cut]) == moment_of(found[cut - 1]):
        cut += 1
    return Page(tuple(reversed(found[:cut]) if newest else found[:cut]), cut < len(found))


def read_timeline(file: Path, since: float, until: float, limit: int = MOST, *, newest: bool = True) -> Page:
    """The same from the file, without changing it; empty when it is absent, locked, older, newer or no
    journal."""
    return reader.read(
        file,
        _SINCE_VERSION,
        lambda db: timeline_in(db, since, until, limit, newest=newest),
        Page((), more=False),
    )


def look_at_timeline(
    file: Path, since: float, until: float, limit: int = MOST, *, newest: bool = True
) -> Page:
    """The same, and no file that can't be read is taken for an empty one: raises ApplianceError."""
    return reader.look(file, _SINCE_VERSION, lambda db: timeline_in(db, since, until, limit, newest=newest))


_EVENT_COLUMNS = tuple(f.name for f in fields(Event))


def _samples(db: sqlite3.Connection, since: float, until: float, limit: int, newest: bool) -> list[Point]:
    """Minutes up to where the seconds begin, then seconds: no moment twice."""
    (first,) = db.execute("SELECT MIN(at) FROM samples WHERE step = 1 AND at < ?", (until,)).fetchone()
    border = until if first is None else minute_of(first)
    spans = [(MINUTE, since, min(until, border)), (1, since, until)]
    found: list[Point] = []
    for step, begin, end in reversed(spans) if newest else spans:
        if len(found) < limit and begin < end:
            found += points_in(db, step, begin, end, limit - len(found), newest=newest)
    return found


def _rows(
    db: sqlite3.Connection, table: str, at: str, columns: Sequence[str], since: float, until: float,
    limit: int, newest: bool,
) -> list[Any]:  # fmt: skip
    return db.execute(
        f"SELECT {', '.join(columns)} FROM {table} WHERE {at} >= ? AND {at} < ?"  # noqa: S608
        f" ORDER BY {at} {'DESC' if newest else 'ASC'} LIMIT ?",
        (since, until, limit + _TIES),
    ).fetchall()


def _decided(row: Sequence[Any]) -> Decided:
    plain = dict(zip(DECISION_COLUMNS, row, strict=True))
    return Decided(**plain | {name: _object(plain[name]) for name in ("features", "view", "given")})


def _object(text: str | None) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
