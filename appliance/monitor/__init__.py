"""Samples over time become states. What follows from a state for a request is decided by routing.

The names load when they are first used: the sensor child imports this package, too, and should stay small.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from appliance.monitor.governor.baseline import (
        PowerSource,
        SpeedKey,
        SpeedTracker,
        power_source,
        speed_key,
    )
    from appliance.monitor.governor.states import ThermalState
    from appliance.monitor.monitor import Monitor, Timing
    from appliance.monitor.snapshot import GpuView, MonitorSnapshot, heat_factor

__all__ = [
    "GpuView",
    "Monitor",
    "MonitorSnapshot",
    "PowerSource",
    "SpeedKey",
    "SpeedTracker",
    "ThermalState",
    "Timing",
    "heat_factor",
    "power_source",
    "speed_key",
]

_HOME = {
    "GpuView": "snapshot",
    "Monitor": "monitor",
    "MonitorSnapshot": "snapshot",
    "PowerSource": "governor.baseline",
    "SpeedKey": "governor.baseline",
    "SpeedTracker": "governor.baseline",
    "ThermalState": "governor.states",
    "Timing": "monitor",
    "heat_factor": "snapshot",
    "power_source": "governor.baseline",
    "speed_key": "governor.baseline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(name)
    return getattr(import_module(f"appliance.monitor.{_HOME[name]}"), name)
