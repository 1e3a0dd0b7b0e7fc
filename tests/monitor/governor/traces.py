"""Traces of samples, one a second, and the states that they lead to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from appliance.monitor.governor import Reading, Rule, ThermalState
from appliance.monitor.governor.baseline import Measured
from appliance.monitor.governor.states import Governor, step

RULE = Rule(slow=0.8, throttle_margin=2.0, hold=5.0, dwell=60.0)
SW_THERMAL, HW_THERMAL, HW_SLOWDOWN, POWER_CAP, BRAKE, IDLE = 0x20, 0x40, 0x8, 0x4, 0x80, 0x1
SLOWDOWN_AT = 94.0


@dataclass(frozen=True)
class At:
    """One second: a temperature, bits and a speed ratio; None is not readable."""

    celsius: float | None
    reasons: int | None = 0
    ratio: float | None = None


def reading(at: At) -> Reading:
    return Reading(None if at.celsius is None else SLOWDOWN_AT - at.celsius, None, at.reasons)


def measured(ratio: float | None) -> Measured | None:
    return None if ratio is None else Measured(ratio)


def states(trace: Iterable[At], rule: Rule = RULE) -> list[ThermalState]:
    governor, found = Governor(), []
    for second, at in enumerate(trace):
        governor = step(governor, reading(at), float(second), measured(at.ratio), rule)
        found.append(governor.state)
    return found


def course(trace: Iterable[At], rule: Rule = RULE) -> list[tuple[ThermalState, int]]:
    """Each state and how many seconds it lasted."""
    return [(state, len(list(group))) for state, group in groupby(states(trace, rule))]
