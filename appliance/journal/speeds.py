"""Decode speeds that were seen on this machine: cold, hot and on battery.

| condition | replies that count |
| --- | --- |
| `cold` | the machine was cool and on mains power |
| `hot` | throttled or critical, on mains power |
| `battery` | unplugged, whatever the heat |

A state that could not be read counts for none of them. Nor does a reply that shared the engine with others,
that was short, or that lacked something other than speed (a degradation code but `throttled`).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from appliance.journal import reader
from appliance.journal.schema import columns

Condition = Literal["cold", "hot", "battery"]
CONDITIONS: tuple[Condition, ...] = ("cold", "hot", "battery")
ENOUGH_TOKENS = 16
"""Tokens of a reply; the speed of a shorter one says little."""
NEWEST = 50
"""Replies of each condition whose median is taken: drivers and engines get better over the months."""
_NEEDED = frozenset({"thermal", "power", "streams", "plan"})

_COUNTS = (
    "served_model = ? AND route = 'local' AND status < 400 AND streams = 1 AND tokens_out >= ?"
    " AND tokens_per_second > 0 AND plan IS NOT NULL AND (degraded IS NULL OR degraded = 'throttled')"
)
_HELD: dict[Condition, str] = {
    "cold": "power = 'ac' AND thermal = 'cool'",
    "hot": "power = 'ac' AND thermal IN ('throttled', 'critical')",
    "battery": "power = 'battery'",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """The speed of one request alone, under one condition."""

    condition: Condition
    tokens_per_second: float
    """Median of the newest replies."""
    n: int
    """Replies that it comes from."""
    last_at: float
    """Unix time of the newest of them."""


def speeds_in(db: sqlite3.Connection, served_model: str, plan: str | None = None) -> tuple[Seen, ...]:
    """As `Journal.speeds`, over an open connection. Empty for a file of an older version."""
    if not columns(db) >= _NEEDED:
        return ()
    plan = plan or _newest_plan(db, served_model)
    if plan is None:
        return ()
    found = (_seen(db, served_model, plan, condition) for condition in CONDITIONS)
    return tuple(one for one in found if one is not None)


def read_speeds(file: Path, served_model: str, plan: str | None = None) -> tuple[Seen, ...]:
    """The same from the file, without changing it; empty when it is absent, locked, newer or no journal."""
    return reader.read(file, 0, lambda db: speeds_in(db, served_model, plan), ())


def _newest_plan(db: sqlite3.Connection, served_model: str) -> str | None:
    found = db.execute(
        f"SELECT plan FROM requests WHERE {_COUNTS} ORDER BY started_at DESC LIMIT 1",  # noqa: S608
        (served_model, ENOUGH_TOKENS),
    ).fetchone()
    return None if found is None else str(found[0])


def _seen(db: sqlite3.Connection, served_model: str, plan: str, condition: Condition) -> Seen | None:
    rows = db.execute(
        f"SELECT tokens_per_second, started_at FROM requests WHERE {_COUNTS} AND plan = ?"  # noqa: S608
        f" AND {_HELD[condition]} ORDER BY started_at DESC LIMIT ?",
        (served_model, ENOUGH_TOKENS, plan, NEWEST),
    ).fetchall()
    if not rows:
        return None
    return Seen(condition, median(float(speed) for speed, _ in rows), len(rows), float(rows[0][1]))
