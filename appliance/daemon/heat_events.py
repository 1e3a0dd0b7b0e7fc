"""Heat, power and easing as events of the journal: what changed, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from appliance.journal.timeline import CPU, GPU
from appliance.monitor import Change, MonitorSnapshot

Note = Callable[[str, str | None, str, str | None], None]
_QUIET = ("unknown", "cool")
"""Between these nothing has happened that a person would look for: a sensor began or stopped to answer."""


class HeatEvents:
    """The monitor's listener. `note` takes kind, device, sentence and detail."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._power = "unknown"
        self._eases: str | None = None

    def changed(self, changes: Sequence[Change], seen: MonitorSnapshot) -> None:
        """Take what has changed, and the machine as it is now."""
        names = {gpu.id: gpu.name for gpu in seen.gpus}
        for change in changes:
            if change.before in _QUIET and change.after in _QUIET:  # troubles have events of their own
                continue
            device = change.device
            ref = CPU if device == CPU else f"{GPU}{device}"
            name = "The CPU" if device == CPU else names.get(device, device)
            text = f"{name} is {change.after}, was {change.before}."
            self._note("thermal", ref, text, _sentence(change.why))
        if seen.power not in (self._power, "unknown"):
            if self._power != "unknown" or seen.power == "battery":
                self._note("power", None, _power(seen), None)
            self._power = seen.power
        if (seen.eases is None) != (self._eases is None):
            text = "Batch work waits first." if seen.eases else "Batch work goes on as usual."
            self._note("easing", None, text, None if seen.eases is None else _sentence(seen.eases))
        self._eases = seen.eases


def _sentence(why: str) -> str:
    return why[:1].upper() + why[1:].rstrip(".") + "."


def _power(seen: MonitorSnapshot) -> str:
    if seen.power == "ac":
        return "The machine is on mains power."
    percent = seen.battery.percent if seen.battery is not None else None
    return "The machine runs on battery" + ("." if percent is None else f", {percent:.0f} % left.")
