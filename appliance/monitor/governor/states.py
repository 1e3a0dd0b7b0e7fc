"""The thermal rule of one device as a pure state machine. Laptop sensors lie: speed decides, sensors explain.

    unknown    nothing can be read for `hold`
    cool       readings, and no sign of heat
    warm       a sign of heat at usual speed: shown, changes nothing
    throttled  a sign of heat, and decode under `slow` of the baseline and below its usual spread
    critical   at or above the slowdown threshold for `hold`, whatever the speed;
               ends after `dwell` without a sign of heat

It gets worse at once and better slowly: a state is left for a better one after `dwell` in it at the earliest,
so that no two improvements are closer than that. A reading that is missing trips nothing and clears nothing:
`throttled` without sensors ends when the measured speed is back. `critical` ends when the sensors are back
and cool; without them it becomes `throttled` after `BLIND_DWELLS`, so that speed decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from appliance.monitor.governor import signs, trend
from appliance.monitor.governor.baseline import Measured
from appliance.monitor.governor.signs import Signs
from appliance.monitor.governor.trend import Trend
from appliance.monitor.governor.values import Reading, Rule, ThermalState

RECOVERED = 0.05
"""Speed must be this far above `slow` before `throttled` ends, so that noise around the limit does not
flap.
"""
FAR = 10.0
"""Degrees below the slowdown threshold where no true thermal bit is set."""
BLIND_DWELLS = 10
"""A critical device that nobody could read for so many dwells, while nothing was generated, is `throttled`:
then its speed can say otherwise. Without that, a sensor that is gone would end all local work for ever."""
MAX_GAP_S = 15.0
"""After a longer silence (the machine slept) nothing can be said about the time between."""

SEVERITY: dict[ThermalState, int] = {"cool": 0, "unknown": 1, "warm": 2, "throttled": 3, "critical": 4}


@dataclass(frozen=True, slots=True)
class Governor:
    """The machine's memory: everything that the next step needs."""

    state: ThermalState = "unknown"
    since: float | None = None
    """When this state began; None before the first step."""
    proven: ThermalState = "unknown"
    """The last state that readings have shown; while they are missing it waits behind `unknown`."""
    proven_since: float | None = None
    signs: Signs = field(default_factory=Signs)
    trend: Trend = field(default_factory=Trend)
    over_since: float | None = None
    """Since when at or above the slowdown threshold, without a break."""
    calm_since: float | None = None
    """Since when cool beyond doubt, without a break."""
    blind_since: float | None = None
    """Since when nothing could be read."""
    last: float | None = None
    """When something was read last."""


def step(
    governor: Governor, reading: Reading | None, now: float, speed: Measured | None, rule: Rule
) -> Governor:
    """The state after one more sample.

    `reading` None: nothing could be read. `now`: seconds on any steady clock. `speed`: how fast the models on
    this device are beside their baseline, None while unknown.
    """
    told = reading if reading is not None and reading.known else None
    after = _blind(governor, now) if told is None else _observe(governor, told, now, rule)
    proven = _proven(after, told is not None, now, speed, rule)
    if proven != after.proven or after.proven_since is None:
        after = replace(after, proven=proven, proven_since=now)
    state = _shown(after, now, rule)
    if state != governor.state or governor.since is None:
        return replace(after, state=state, since=now)
    return after


def worst(states: Iterable[ThermalState]) -> ThermalState:
    """The state of a machine with several devices. No device at all is unknown."""
    return max(states, key=SEVERITY.__getitem__, default="unknown")


def _observe(governor: Governor, reading: Reading, now: float, rule: Rule) -> Governor:
    seen = signs.look(governor.signs, reading, now, rule.throttle_margin)
    over = reading.alarms and reading.headroom is not None and reading.headroom <= 0
    unbroken = governor.last is not None and now - governor.last <= max(MAX_GAP_S, rule.hold)
    return replace(
        governor,
        signs=seen,
        trend=trend.look(governor.trend, reading.headroom, now),
        over_since=_since(governor.over_since if unbroken else None, over, now),
        calm_since=_since(governor.calm_since if unbroken else None, _calm(reading, seen, rule), now),
        blind_since=None,
        last=now,
    )


def _calm(reading: Reading, seen: Signs, rule: Rule) -> bool:
    """Cool beyond doubt, by the temperature that `critical` came from. Far below, a bit that stays set is a
    lie.
    """
    if reading.headroom is None or reading.headroom <= rule.throttle_margin:
        return False
    if reading.headroom >= FAR:
        return True
    return signs.complete(seen.seen, reading) and not signs.suspicious(reading.reasons)


def _blind(governor: Governor, now: float) -> Governor:
    """Nothing was read: what is known stays, and no stretch of time counts as proven."""
    since = now if governor.blind_since is None else governor.blind_since
    return replace(governor, over_since=None, calm_since=None, blind_since=since)


def _proven(g: Governor, known: bool, now: float, speed: Measured | None, rule: Rule) -> ThermalState:
    """The state by what was read and measured; without a reading only `throttled` can end."""
    if g.over_since is not None and now - g.over_since >= rule.hold:
        return "critical"
    if g.proven == "critical" and (g.calm_since is None or now - g.calm_since < rule.dwell):
        blind = g.blind_since is not None and now - g.blind_since >= BLIND_DWELLS * rule.dwell
        return "throttled" if blind else "critical"
    if g.proven == "throttled" and not _may_leave_throttled(g, known, speed, rule):
        return "throttled"
    if not known:
        return "unknown" if g.proven == "throttled" and _rested(g, now, rule) else g.proven
    wanted: ThermalState = "cool"
    if g.signs.hot:
        wanted = "throttled" if speed is not None and speed.is_slow(rule.slow) else "warm"
    better = g.proven != "unknown" and SEVERITY[wanted] < SEVERITY[g.proven]
    return g.proven if better and not _rested(g, now, rule) else wanted


def _rested(g: Governor, now: float, rule: Rule) -> bool:
    """It has been in this state for long enough to leave it for a better one."""
    return g.proven_since is None or now - g.proven_since >= rule.dwell


def _may_leave_throttled(g: Governor, known: bool, speed: Measured | None, rule: Rule) -> bool:
    """The speed is back; or the sensors can be read and the heat, or the proof of slowness, is gone."""
    if speed is None:
        return known
    return speed.ratio >= min(1.0, rule.slow + RECOVERED) or (known and not g.signs.hot)


def _shown(g: Governor, now: float, rule: Rule) -> ThermalState:
    """What acts stays shown while nobody can look; what only informs becomes `unknown`."""
    if g.blind_since is None or g.proven in ("throttled", "critical"):
        return g.proven
    return "unknown" if now - g.blind_since >= rule.hold or g.proven == "unknown" else g.proven


def ends_in_s(g: Governor, now: float, rule: Rule) -> float | None:
    """Seconds until `critical` ends at the earliest; None in any other state."""
    if g.state != "critical":
        return None
    if g.blind_since is not None:
        return max(0.0, g.blind_since + BLIND_DWELLS * rule.dwell - now)
    return rule.dwell if g.calm_since is None else max(0.0, g.calm_since + rule.dwell - now)


def _since(before: float | None, holds: bool, now: float) -> float | None:
    if not holds:
        return None
    return now if before is None else before
