"""Decode speeds of this machine while it was cool: what a machine that starts hot is held against."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

NEWEST = 2_000
"""Replies; drivers and engines get better over the months."""
ENOUGH_TOKENS = 8
"""Of a reply, as of one that a baseline is learned from while the daemon runs."""


@dataclass(frozen=True, slots=True)
class CoolSpeed:
    """One local reply on a cool machine."""

    model: str
    plan: str
    power: str
    """`ac` or `battery`."""
    streams: int
    tokens: int
    """In its context when it ended."""
    tokens_per_second: float


def cool_speeds_in(db: sqlite3.Connection) -> tuple[CoolSpeed, ...]:
    """The newest replies that tell a usual speed, oldest first."""
    rows = db.execute(
        "SELECT served_model, plan, power, streams, COALESCE(tokens_in, 0) + tokens_out, tokens_per_second"
        " FROM requests WHERE route = 'local' AND status < 400 AND thermal = 'cool' AND plan IS NOT NULL"
        " AND power IS NOT NULL AND streams IS NOT NULL AND tokens_per_second > 0 AND tokens_out >= ?"
        " ORDER BY started_at DESC LIMIT ?",
        (ENOUGH_TOKENS, NEWEST),
    ).fetchall()
    return tuple(CoolSpeed(*row) for row in reversed(rows))
