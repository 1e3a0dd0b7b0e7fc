"""Rules 7 and 8 of the decision: the machine is spared, on battery and from heat that is on its way."""

from __future__ import annotations

from appliance.monitor.governor.baseline import PowerSource
from appliance.routing import refusals, rules
from appliance.routing.types import BatteryPolicy, Decision, Features, LocalView, View

ON_BATTERY = "the machine runs on battery"
"""Why batch work waits first under the battery saver."""


def saves(power: PowerSource, battery: BatteryPolicy) -> bool:
    """The battery saver is at work: one request at a time, and batch work waits first."""
    return power == "battery" and battery == "saver"


def on_battery(f: Features, v: View) -> Decision | None:
    """Rule 7. Only a battery that is known to feed the machine counts."""
    if v.power != "battery" or v.battery == "full":
        return None
    if v.battery == "saver" and f.lane != "batch":
        return None
    remote = rules.candidate(f, v)
    if remote is None:
        return None
    what = "The machine runs on battery" if v.battery == "remote" else "Batch work is not done on battery"
    return refusals.to_remote("remote.battery", remote, f"{what} (governor.battery is {v.battery})")


def eased(f: Features, v: View, local: LocalView) -> Decision | None:
    """Rule 8. `local` as this request meets it (`rules.seen_by`)."""
    if not rules.waits_first(f, local) or local.thermal != "throttled":
        return None  # while it only gets hot, batch work waits, and nothing leaves for that
    remote = rules.candidate(f, v)
    if remote is None or rules.local_sooner(local, remote, rules.heat(local)):
        return None
    return refusals.to_remote("remote.thermal", remote, f"Batch work waits first, since {local.eases}")
