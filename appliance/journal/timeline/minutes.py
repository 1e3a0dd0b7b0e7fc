"""Many samples of one device as one: the row of a minute. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from statistics import fmean
from typing import Any

from appliance.journal.timeline.values import COLUMNS, STATES, WHOLE, Point

MINUTE = 60
_LAST = ("slowed_ns", "plugged")


def minute_of(at: float) -> float:
    """The beginning of its minute."""
    return at // MINUTE * MINUTE


def minutes(points: Iterable[Point]) -> list[Point]:
    """One row per device and minute in which it was seen, in the order of time."""
    found: dict[tuple[float, str], list[Point]] = {}
    for point in points:
        found.setdefault((minute_of(point.at), point.device), []).append(point)
    return [_minute(at, seen) for (at, _), seen in sorted(found.items())]


def worst(states: Iterable[str | None]) -> str | None:
    """The worst of the known ones."""
    known = [state for state in states if state in STATES]
    return max(known, key=STATES.index, default=None)


def _minute(at: float, seen: Sequence[Point]) -> Point:
    values = {name: _of(name, [getattr(point, name) for point in seen]) for name in COLUMNS}
    state = worst(point.state for point in seen)
    return replace(Point(at, seen[-1].device, MINUTE, seen[-1].name, state), **values)


def _of(name: str, values: Sequence[Any]) -> Any:
    """Of one column. What is unknown has no say; where nothing is known, neither is the minute."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if name == "reasons":
        return reduce(or_, known)
    if name in _LAST:
        return known[-1]
    mean = fmean(known)
    return round(mean) if name in WHOLE else round(mean, 3)
