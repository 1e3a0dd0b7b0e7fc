"""How often the sensors are read. Pure.

| the machine | between two samples |
| --- | --- |
| a request is generated, or heat acts on requests | `interval` (1 s) |
| a model is loaded and idle | 5 x |
| no model is loaded | not at all: no sensor child runs |

With no engine on a GPU the child lets go of every GPU, and reads only the CPU's sensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from appliance.monitor.governor import DeviceHeat

IDLE_SLOWER = 5


@dataclass(frozen=True, slots=True)
class Pace:
    """What the child is told."""

    interval_s: float
    full: bool
    """GPUs are read, too."""

    @property
    def commands(self) -> tuple[str, ...]:
        return (f"interval {self.interval_s}", "mode full" if self.full else "mode host")


def pace(base_s: float, *, busy: bool, gpus: bool, devices: Iterable[DeviceHeat]) -> Pace:
    """The pace for a loaded model."""
    acts = any(device.state in ("throttled", "critical") for device in devices)
    return Pace(base_s * (1 if busy or acts else IDLE_SLOWER), gpus)
