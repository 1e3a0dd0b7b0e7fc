"""Samples over time become states. What follows from a state for a request is decided by routing.

The names load when they are first used: the sensor child imports this package, too, and should stay small.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from appliance.monitor.governor import (
        CPU,
        Change,
        DeviceHeat,
        PowerSource,
        SpeedKey,
        ThermalState,
        power_source,
        speed_key,
    )
    from appliance.monitor.monitor import Listeners, Monitor
    from appliance.monitor.snapshot import (
        CpuView,
        GpuView,
        MonitorSnapshot,
        Pressure,
        heat_factor,
        pressure_on,
    )
    from appliance.monitor.watch import Timing

__all__ = [
    "CPU",
    "Change",
    "CpuView",
    "DeviceHeat",
    "GpuView",
    "Listeners",
    "Monitor",
    "MonitorSnapshot",
    "PowerSource",
    "Pressure",
    "SpeedKey",
    "ThermalState",
    "Timing",
    "heat_factor",
    "power_source",
    "pressure_on",
    "speed_key",
]

_HOME = {
    **dict.fromkeys(
        (
            "CPU", "Change", "DeviceHeat", "PowerSource", "SpeedKey", "ThermalState", "power_source",
            "speed_key",
        ),
        "governor",
    ),
    **dict.fromkeys(("Listeners", "Monitor"), "monitor"),
    **dict.fromkeys(
        ("CpuView", "GpuView", "MonitorSnapshot", "Pressure", "heat_factor", "pressure_on"), "snapshot"
    ),
    "Timing": "watch",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(name)
    return getattr(import_module(f"appliance.monitor.{_HOME[name]}"), name)
