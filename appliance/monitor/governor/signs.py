"""The signs of heat in the samples of one device, debounced. Pure.

| sign | when | ends |
| --- | --- | --- |
| `near` | at most `throttle_margin` degrees below the slowdown threshold | 5 samples without any sign |
| `bits` | a thermal bit in 3 of the last 5 samples | the same |
| `counters` | the driver's thermal counters ran for more than a fifth of the last 10 s | the same |

Thermal bits are SwThermalSlowdown (0x20) and HwThermalSlowdown (0x40), and HwSlowdown (0x8) without the power
brake (0x80): that one alone also shows for moments while clocks change, so one sample proves nothing. The
counters see what happens between two samples. A power cap (0x4) is normal at full load and never a sign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from appliance.monitor.governor.values import Reading, Sign

THERMAL_BITS = 0x20 | 0x40
HW_SLOWDOWN = 0x8
POWER_BRAKE = 0x80

WINDOW = 5
CONFIRMED = 3
COUNTED_S = 10.0
"""How far back the counters are compared."""
ENOUGH_S = 2.0
"""Two looks at a counter that are closer say little."""
SHARE = 0.2
"""Of the time that heat may hold the clocks down before it is a sign."""
_MOST = 64


@dataclass(frozen=True, slots=True)
class Signs:
    """What the next look needs of the last ones."""

    now: tuple[Sign, ...] = ()
    """The signs of the last sample that could be read; they stay until the window is free of any."""
    window: tuple[tuple[bool, bool], ...] = ()
    """Of the last samples: (a bit was set, any sign at all)."""
    counted: tuple[tuple[float, int], ...] = ()
    """(when, nanoseconds) of the thermal counters in the last `COUNTED_S`."""
    seen: tuple[bool, bool] = (False, False)
    """This device has told a distance to its limits, and reason bits. A sample that lacks one of them may
    show heat; that it shows none proves nothing."""

    @property
    def hot(self) -> bool:
        """There is a sign of heat."""
        return bool(self.now)


def look(before: Signs, reading: Reading, now: float, margin: float) -> Signs:
    """After one more sample that could be read."""
    bit = suspicious(reading.reasons)
    near = reading.nearest is not None and reading.nearest <= margin
    counted = _counted(before.counted, reading.slowed_ns, now)
    runs = slowed_share(counted) > SHARE
    seen = (before.seen[0] or reading.nearest is not None, before.seen[1] or reading.reasons is not None)
    any_sign = bit or near or runs
    proves = any_sign or complete(seen, reading)
    window = (*before.window, (bit, any_sign))[-WINDOW:] if proves else before.window
    confirmed = sum(bit for bit, _ in window) >= CONFIRMED
    held: tuple[tuple[Sign, bool], ...] = (("near", near), ("bits", confirmed), ("counters", runs))
    shown = [name for name, holds in held if holds]
    if not shown and before.now and any(sign for _, sign in window):
        shown = list(before.now)
    return replace(before, now=tuple(shown), window=window, counted=counted, seen=seen)


def complete(seen: tuple[bool, bool], reading: Reading) -> bool:
    """The sample has all that this device has ever told."""
    return seen == (reading.nearest is not None, reading.reasons is not None)


def suspicious(reasons: int | None) -> bool:
    """A bit that may mean heat."""
    if reasons is None:
        return False
    braked = bool(reasons & POWER_BRAKE)
    return bool(reasons & THERMAL_BITS) or (bool(reasons & HW_SLOWDOWN) and not braked)


def slowed_share(counted: tuple[tuple[float, int], ...]) -> float:
    """Share of the time between the first and the last look in which heat held the clocks down."""
    if len(counted) < 2:
        return 0.0
    (began, first), (ended, last) = counted[0], counted[-1]
    return (last - first) / 1e9 / (ended - began) if ended - began >= ENOUGH_S else 0.0


def _counted(
    before: tuple[tuple[float, int], ...], slowed_ns: int | None, now: float
) -> tuple[tuple[float, int], ...]:
    if slowed_ns is None:
        return tuple(entry for entry in before if now - entry[0] <= COUNTED_S)
    if before and (slowed_ns < before[-1][1] or now <= before[-1][0]):
        return ((now, slowed_ns),)  # a driver that was loaded anew counts from zero
    kept = [entry for entry in before if now - entry[0] <= COUNTED_S]
    return (*kept, (now, slowed_ns))[-_MOST:]
