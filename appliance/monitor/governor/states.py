"""The thermal rule as a pure state machine. Laptop sensors lie: speed decides, sensors explain.

    unknown    nothing can be read
    cool       readings, and no sign of heat
    warm       a sign of heat at usual speed: shown, changes nothing
    throttled  a sign of heat, and decode under `slow` of the baseline
    critical   at or above the slowdown threshold for `hold`, whatever the speed;
               ends after `dwell` without a sign of heat

A sign of heat is either of:

* at most `throttle_margin` degrees below the slowdown threshold;
* a thermal bit (SwThermalSlowdown 0x20, HwThermalSlowdown 0x40), or HwSlowdown (0x8) without the power
  brake (0x80), in 3 of the last 5 samples. HwSlowdown alone also shows for moments while clocks change, so
  one sample proves nothing.

It ends when the last 5 samples are free of it. A power cap (0x4) is normal at full load and never a sign. A
reading that is missing trips nothing and clears nothing: `throttled` without sensors ends when the measured
speed is back, `critical` when the sensors are back and cool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

ThermalState = Literal["cool", "warm", "throttled", "critical", "unknown"]

THERMAL_BITS = 0x20 | 0x40
HW_SLOWDOWN = 0x8
POWER_BRAKE = 0x80

WINDOW = 5
CONFIRMED = 3
RECOVERED = 0.05
"""Speed must be this far above `slow` before `throttled` ends, so that noise around the limit does not
flap.
"""
FAR = 10.0
"""Degrees below the slowdown threshold where no true thermal bit is set."""
MAX_GAP_S = 15.0
"""After a longer silence (the machine slept) nothing can be said about the time between."""

_SEVERITY: dict[ThermalState, int] = {"cool": 0, "unknown": 1, "warm": 2, "throttled": 3, "critical": 4}


@dataclass(frozen=True, slots=True)
class Rule:
    """The `[governor]` section. Degrees Celsius, seconds; `slow` is a fraction of the baseline."""

    slow: float = 0.8
    throttle_margin: float = 2.0
    hold: float = 5.0
    dwell: float = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What one sample says about heat; None where the device does not tell."""

    headroom: float | None = None
    """Degrees below the slowdown threshold; zero or less is at or above it."""
    margin: float | None = None
    """The driver's own distance to the nearest limit. It may mean the maximum operating temperature, where
    many laptops run all day, so it can make a device warm and never critical."""
    reasons: int | None = None
    """The clock event reasons, as a mask."""

    @property
    def nearest(self) -> float | None:
        """Degrees to the limit, the threshold's where it is known."""
        return self.headroom if self.headroom is not None else self.margin

    @property
    def known(self) -> bool:
        """At least one sign of heat could be seen."""
        return self.nearest is not None or self.reasons is not None


@dataclass(frozen=True, slots=True)
class Governor:
    """The machine's memory: everything that the next step needs."""

    state: ThermalState = "unknown"
    since: float | None = None
    """When this state began; None before the first step."""
    hot: bool = False
    """There is a sign of heat now."""
    window: tuple[tuple[bool, bool], ...] = ()
    """Of the last samples: (a bit was set, any sign at all)."""
    over_since: float | None = None
    """Since when at or above the slowdown threshold, without a break."""
    calm_since: float | None = None
    """Since when cool beyond doubt, without a break."""
    seen: tuple[bool, bool] = (False, False)
    """This device has told a distance to its limits, and reason bits. A sample that lacks one of them may
    show heat; that it shows none proves nothing."""
    last: float | None = None
    """When something was read last."""


def step(
    governor: Governor, reading: Reading | None, now: float, ratio: float | None, rule: Rule
) -> Governor:
    """The state after one more sample.

    `reading` None: nothing could be read. `now`: seconds on any steady clock. `ratio`: measured decode
    speed over the baseline, None while unknown.
    """
    known = reading is not None and reading.known
    after = _observe(governor, reading, now, rule) if reading is not None and known else _blind(governor)
    state = _decide(after, known, now, ratio, rule)
    if state != governor.state or governor.since is None:
        return replace(after, state=state, since=now)
    return after


def worst(states: Iterable[ThermalState]) -> ThermalState:
    """The state of a machine with several devices. No device at all is unknown."""
    return max(states, key=_SEVERITY.__getitem__, default="unknown")


def _observe(governor: Governor, reading: Reading, now: float, rule: Rule) -> Governor:
    bit = _suspicious(reading.reasons)
    near = reading.nearest is not None and reading.nearest <= rule.throttle_margin
    over = reading.headroom is not None and reading.headroom <= 0
    has = (reading.nearest is not None, reading.reasons is not None)
    seen = (governor.seen[0] or has[0], governor.seen[1] or has[1])
    complete = has == seen
    window = (*governor.window, (bit, bit or near))[-WINDOW:] if bit or near or complete else governor.window
    confirmed = sum(bit for bit, _ in window) >= CONFIRMED
    unbroken = governor.last is not None and now - governor.last <= max(MAX_GAP_S, rule.hold)
    return replace(
        governor,
        hot=near or confirmed or (governor.hot and any(sign for _, sign in window)),
        window=window,
        over_since=_since(governor.over_since if unbroken else None, over, now),
        calm_since=_since(governor.calm_since if unbroken else None, _calm(reading, complete, rule), now),
        seen=seen,
        last=now,
    )


def _calm(reading: Reading, complete: bool, rule: Rule) -> bool:
    """Cool beyond doubt, by the temperature that `critical` came from. Far below, a bit that stays set is a
    lie.
    """
    if reading.headroom is None or reading.headroom <= rule.throttle_margin:
        return False
    return reading.headroom >= FAR or (complete and not _suspicious(reading.reasons))


def _blind(governor: Governor) -> Governor:
    """Nothing was read: what is known stays, and no stretch of time counts as proven."""
    return replace(governor, over_since=None, calm_since=None)


def _decide(g: Governor, known: bool, now: float, ratio: float | None, rule: Rule) -> ThermalState:
    if g.over_since is not None and now - g.over_since >= rule.hold:
        return "critical"
    if g.state == "critical" and (g.calm_since is None or now - g.calm_since < rule.dwell):
        return "critical"
    if g.state == "throttled" and not _may_leave_throttled(g, known, ratio, rule):
        return "throttled"
    if not known:
        return "unknown"
    if not g.hot:
        return "cool"
    return "throttled" if ratio is not None and ratio < rule.slow else "warm"


def _may_leave_throttled(g: Governor, known: bool, ratio: float | None, rule: Rule) -> bool:
    """The speed is back; or the sensors can be read and the heat, or the proof of slowness, is gone."""
    if ratio is None:
        return known
    return ratio >= min(1.0, rule.slow + RECOVERED) or (known and not g.hot)


def _suspicious(reasons: int | None) -> bool:
    if reasons is None:
        return False
    braked = bool(reasons & POWER_BRAKE)
    return bool(reasons & THERMAL_BITS) or (bool(reasons & HW_SLOWDOWN) and not braked)


def _since(before: float | None, holds: bool, now: float) -> float | None:
    if not holds:
        return None
    return now if before is None else before
