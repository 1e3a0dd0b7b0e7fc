"""The figures of devices over time, for curves: bounded, with gaps where nothing was seen."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.journal.timeline.minutes import MINUTE
from appliance.journal.timeline.table import KEPT_S
from appliance.journal.timeline.values import COLUMNS, CPU, MACHINE, STATES

MOST_ROWS, MOST_OF_ALL = 4_000, 16_000
"""Rows of one device and of all: an hour of seconds of a few devices. Where there would be more, each stands
for a longer time."""
_OF_CPU = ("temperature", "headroom", "critical_at", "slowed_ns", "clock", "factor")
_OF_MACHINE = COLUMNS[COLUMNS.index("factor") :]
_OF_GPU = tuple(name for name in COLUMNS[: COLUMNS.index("factor") + 1] if name != "critical_at")
_HIGHEST = ("temperature", "memory_temperature", "slowed_ns", "used_by_engine", "swap_used", "waiting")
_PLUGGED = COLUMNS.index("plugged") + 2
_LOWEST = ("headroom", "margin", "factor", "free", "ram_available", "plugged")


@dataclass(frozen=True, slots=True)
class Series:
    """One device."""

    device: str
    name: str | None
    columns: tuple[str, ...]
    """`at`, `state`, and the figures that such a device can have."""
    rows: tuple[tuple[Any, ...], ...]
    """In the order of time; None is unknown. Where nothing was seen there is no row."""

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device, "name": self.name, "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class History:
    """All that was asked for."""

    step: int
    """Seconds that a row stands for. At 1 a row is what was seen: a second apart while requests run, five
    while none does."""
    since: float
    until: float
    devices: tuple[Series, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step, "from": self.since, "to": self.until,
            "devices": [series.to_json() for series in self.devices],
        }  # fmt: skip


def history_in(
    db: sqlite3.Connection, now: float, seconds: float, step: int | None, device: str | None
) -> History:
    """The last `seconds`. `step` None: samples within the hour that they stay, else minutes. `device` None:
    all.

    Where a device would have more than MOST_ROWS, a row stands for several steps: the worst of heat, memory,
    queue and factor, all reasons, the mean of the rest.
    """
    source = step or (1 if seconds <= KEPT_S[1] else MINUTE)
    seconds = max(source, min(seconds, KEPT_S[source]))
    since, wide = now - seconds, source
    known = db.execute("SELECT number, device, name FROM devices ORDER BY number").fetchall()
    wanted = {row[0] for row in known if device is None or row[1] == device}
    most = min(MOST_ROWS, MOST_OF_ALL // max(1, len(wanted)))
    if seconds / source > most:
        wide = source * -int(-seconds // (source * most))
        since = since // wide * wide
    rows = _rows(db, source, wide, since, now, next(iter(wanted)) if device and wanted else None)
    found = [
        Series(name, label, ("at", "state", *_columns(name)), _shown(name, rows.get(number, [])))
        for number, name, label in known
        if number in wanted
    ]
    return History(wide, since, now, tuple(series for series in found if series.rows))


def devices_in(db: sqlite3.Connection) -> tuple[str, ...]:
    """All that have samples."""
    return tuple(row[0] for row in db.execute("SELECT device FROM devices ORDER BY number"))


def _columns(device: str) -> tuple[str, ...]:
    return {CPU: _OF_CPU, MACHINE: _OF_MACHINE}.get(device, _OF_GPU)


def _rows(
    db: sqlite3.Connection, source: int, wide: int, since: float, until: float, device: int | None
) -> dict[int, list[tuple[Any, ...]]]:
    """(at, state, every column) of each device by its number: one walk over the table for all of them."""
    bucket = f"CAST(at / {wide} AS INTEGER) * {wide}"
    what = ("at", "state", *COLUMNS) if wide == source else (bucket, _WORST, *map(_gathered, COLUMNS))
    found: dict[int, list[tuple[Any, ...]]] = {}
    for number, *row in db.execute(
        f"SELECT device, {', '.join(what)} FROM samples WHERE step = ? AND at >= ? AND at <= ?"  # noqa: S608
        + ("" if device is None else " AND device = ?")
        + ("" if wide == source else f" GROUP BY device, {bucket}")
        + " ORDER BY device, 2",
        (source, since, until) if device is None else (source, since, until, device),
    ):
        found.setdefault(number, []).append(tuple(row))
    return found


def _shown(device: str, rows: Sequence[tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
    spots = [COLUMNS.index(name) + 2 for name in _columns(device)]
    return tuple((row[0], _state(row[1]), *(_value(spot, row[spot]) for spot in spots)) for row in rows)


def _state(value: object) -> object:
    return STATES[value] if isinstance(value, int) else value


def _value(spot: int, value: object) -> object:
    return bool(value) if spot == _PLUGGED and value is not None else value


def _gathered(column: str) -> str:
    if column == "reasons":
        bits = " + ".join(f"MAX({column} & {1 << bit})" for bit in range(32))
        return f"({bits})"
    if column in _HIGHEST or column in _LOWEST:
        return f"{'MAX' if column in _HIGHEST else 'MIN'}({column})"
    return f"ROUND(AVG({column}), 3)"


_WORST = f"MAX(CASE state {' '.join(f'WHEN {name!r} THEN {rank}' for rank, name in enumerate(STATES))} END)"
