"""Why a device's state has changed, in a sentence with its figures."""

from __future__ import annotations

from appliance.monitor.governor.baseline import Measured
from appliance.monitor.governor.signs import slowed_share
from appliance.monitor.governor.states import Governor
from appliance.monitor.governor.values import Reading, Rule, Sign
from appliance.units import duration


def why(after: Governor, reading: Reading | None, speed: Measured | None, rule: Rule) -> str:
    """Why the device is in the state that it has just entered."""
    if after.state == "unknown":
        return "its sensors can't be read"
    if after.state == "critical":
        return f"it was at or above its slowdown threshold for {duration(rule.hold)}"
    if after.state == "cool":
        return "there is no sign of heat any more"
    seen = ", ".join(_sign(sign, after, reading) for sign in after.signs.now) or "the last sign is fresh"
    pace = "" if speed is None else f"decode is at {speed.ratio:.0%} of its usual speed"
    if after.state == "warm":
        return f"{seen}; {pace or 'no speed was measured that heat has lowered'}"
    return f"{seen}; {pace}, under the limit of {rule.slow:.0%}"


def _sign(sign: Sign, after: Governor, reading: Reading | None) -> str:
    if sign == "near":
        left = None if reading is None else reading.nearest
        if left is None:
            return "it was close to its threshold"
        return f"{left:.0f} °C to its threshold" if left > 0 else "it is at its threshold"
    if sign == "bits":
        return "the driver says that heat slows its clocks"
    share = slowed_share(after.signs.counted)
    return f"heat held its clocks down for {share:.0%} of the last seconds"
