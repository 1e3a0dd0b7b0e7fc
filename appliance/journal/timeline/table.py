"""The tables of samples and decisions: written in batches, rolled up into minutes, and kept small."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from appliance.journal.timeline.minutes import MINUTE, minute_of, minutes
from appliance.journal.timeline.values import COLUMNS, WHOLE, Decided, Point
from appliance.text import clean_line

KEPT_S = {1: 3_600, MINUTE: 7 * 86_400}
"""Seconds that rows stay, by their step."""
MOST_DEVICES = 16
"""At one moment, the CPU and the machine among them."""
KEPT_DECISIONS = 20_000
_PRUNE_DECISIONS = 500
"""Decisions between two clean-ups."""
_LONGEST_TEXT, _LONGEST_JSON = 400, 4_000
"""Characters of a decision's texts and of what it was made from."""

_NUMBERS = ", ".join(f"{name} {'INTEGER' if name in WHOLE else 'REAL'}" for name in COLUMNS)
TABLES = (
    "CREATE TABLE IF NOT EXISTS devices (number INTEGER PRIMARY KEY, device TEXT NOT NULL UNIQUE, name TEXT)",
    "CREATE TABLE IF NOT EXISTS samples (step INTEGER NOT NULL, at REAL NOT NULL, device INTEGER NOT NULL,"
    f" state TEXT, {_NUMBERS}, PRIMARY KEY (step, at, device)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS decisions (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL,"
    " request_id TEXT NOT NULL, moment TEXT NOT NULL, model TEXT NOT NULL, target TEXT NOT NULL,"
    " reason TEXT NOT NULL, detail TEXT NOT NULL, remote TEXT, features TEXT, view TEXT, given TEXT)",
    "CREATE INDEX IF NOT EXISTS decisions_at ON decisions (at)",
    "CREATE INDEX IF NOT EXISTS events_at ON events (at)",
)
"""Since version 4."""
DECISION_COLUMNS = tuple(f.name for f in fields(Decided))
_OBJECTS = ("features", "view", "given")


def keep(db: sqlite3.Connection, points: Sequence[Point], decided: Sequence[Decided], now: float) -> None:
    """Write a batch; all that was seen before `now` is in it or was written before. In a transaction."""
    _insert(db, points)
    marks = ",".join("?" * len(DECISION_COLUMNS))
    last = None
    for one in decided:
        last = db.execute(
            f"INSERT INTO decisions ({','.join(DECISION_COLUMNS)}) VALUES ({marks})",  # noqa: S608
            tuple(_value(name, getattr(one, name)) for name in DECISION_COLUMNS),
        ).lastrowid
    if last is not None and (last // _PRUNE_DECISIONS) != ((last - len(decided)) // _PRUNE_DECISIONS):
        _prune_decisions(db)
    if _roll_up(db, now):
        prune_samples(db, now)


def prune(db: sqlite3.Connection, now: float) -> None:
    """At the start: what the last daemon left. In a transaction."""
    _roll_up(db, now)
    prune_samples(db, now)
    for step, seconds in KEPT_S.items():  # what a wrong clock dated into the future can't pile up
        db.execute(
            "DELETE FROM samples WHERE step = ? AND at <"
            " (SELECT at FROM samples WHERE step = ? ORDER BY at DESC LIMIT 1 OFFSET ?)",
            (step, step, MOST_DEVICES * (seconds // step + MINUTE)),
        )
    _prune_decisions(db)


def prune_samples(db: sqlite3.Connection, now: float) -> None:
    """What is too old, and devices that nothing is known of any more."""
    for step, seconds in KEPT_S.items():
        # whole minutes, so that where the seconds begin a minute's row ends
        db.execute("DELETE FROM samples WHERE step = ? AND at < ?", (step, minute_of(now - seconds)))
    numbers = [row[0] for row in db.execute("SELECT number FROM devices")]
    gone = [
        n
        for n in numbers
        if not db.execute("SELECT 1 FROM samples WHERE device = ? LIMIT 1", (n,)).fetchone()
    ]
    db.executemany("DELETE FROM devices WHERE number = ?", [(number,) for number in gone])


def forget_between(db: sqlite3.Connection, since: float, until: float) -> None:
    """The clock was set back from `until` to `since`: what is dated between is dated wrong."""
    for step in KEPT_S:
        db.execute(
            "DELETE FROM samples WHERE step = ? AND at + ? > ? AND at <= ?", (step, step - 1, since, until)
        )


def _roll_up(db: sqlite3.Connection, now: float) -> bool:
    """Make the rows of all minutes that have ended; whether there were any."""
    ended = minute_of(now)
    (last,) = db.execute("SELECT MAX(at) FROM samples WHERE step = ? AND at < ?", (MINUTE, ended)).fetchone()
    begin = ended - KEPT_S[1] if last is None else max(last + MINUTE, ended - KEPT_S[1])
    made = minutes(points_in(db, 1, begin, ended))
    _insert(db, made)
    return bool(made)


def points_in(
    db: sqlite3.Connection, step: int, since: float, until: float, limit: int = -1, *, newest: bool = False
) -> list[Point]:
    """The rows of one step from `since` on and before `until`, in the order of time."""
    order = "DESC" if newest else "ASC"
    names = {number: (device, name) for number, device, name in db.execute("SELECT * FROM devices")}
    found = db.execute(
        f"SELECT at, device, state, {', '.join(COLUMNS)} FROM samples"  # noqa: S608
        f" WHERE step = ? AND at >= ? AND at < ? ORDER BY at {order}, device {order} LIMIT ?",
        (step, since, until, limit),
    ).fetchall()
    return [
        _point(step, row, *names.get(row[1], ("?", None))) for row in (reversed(found) if newest else found)
    ]


def _point(step: int, row: Sequence[Any], device: str, name: str | None) -> Point:
    values = dict(zip(COLUMNS, row[3:], strict=True))
    if values["plugged"] is not None:
        values["plugged"] = bool(values["plugged"])
    return Point(row[0], device, step, name, row[2], **values)


def _insert(db: sqlite3.Connection, points: Iterable[Point]) -> None:
    marks = ",".join("?" * (len(COLUMNS) + 4))
    known: dict[str, int] = {}
    rows = []
    for point in points:
        if point.device not in known:
            known[point.device] = _number_of(db, point.device, point.name)
        values = (getattr(point, name) for name in COLUMNS)
        rows.append((point.step, point.at, known[point.device], point.state, *values))
    db.executemany(f"INSERT OR REPLACE INTO samples VALUES ({marks})", rows)  # noqa: S608


def _number_of(db: sqlite3.Connection, device: str, name: str | None) -> int:
    db.execute(
        "INSERT INTO devices (device, name) VALUES (?, ?) ON CONFLICT (device)"
        " DO UPDATE SET name = COALESCE(excluded.name, name)",
        (clean_line(device, 160), None if name is None else clean_line(name, 120)),
    )
    found = db.execute("SELECT number FROM devices WHERE device = ?", (clean_line(device, 160),)).fetchone()
    return int(found[0])


def _prune_decisions(db: sqlite3.Connection) -> None:
    db.execute(
        "DELETE FROM decisions WHERE number <= (SELECT COALESCE(MAX(number), 0) FROM decisions) - ?",
        (KEPT_DECISIONS,),
    )


def _value(name: str, value: Any) -> Any:
    if name in _OBJECTS:
        return _packed(value)
    return clean_line(value, _LONGEST_TEXT) if isinstance(value, str) else value


def _packed(value: Mapping[str, Any]) -> str | None:
    """The object without what is unknown; None where it is empty or too large to keep."""
    text = json.dumps(_known(value), separators=(",", ":"), default=str)
    return text if 2 < len(text) <= _LONGEST_JSON else None


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _known(part) for key, part in value.items() if part is not None}
    return [_known(part) for part in value] if isinstance(value, list | tuple) else value
