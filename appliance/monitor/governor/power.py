"""What feeds the machine, debounced: a loose plug or one odd look changes nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from appliance.monitor.governor.baseline import PowerSource


@dataclass(frozen=True, slots=True)
class Power:
    """The source as it counts, and one that wants to take its place."""

    source: PowerSource = "unknown"
    other: PowerSource | None = None
    since: float = 0.0
    """Since when the other one was seen, without a break."""


def step(power: Power, seen: PowerSource, now: float, hold_s: float) -> Power:
    """After one more look. The first known source counts at once, another one after `hold_s`; a look that
    could not tell changes nothing.
    """
    if seen == "unknown" or seen == power.source:
        return replace(power, other=None) if seen == power.source else power
    if power.source == "unknown":
        return Power(seen)
    if power.other != seen:
        return replace(power, other=seen, since=now)
    return Power(seen) if now - power.since >= hold_s else power
