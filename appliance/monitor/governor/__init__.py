"""The thermal rule, pure: readings and speeds in, states with reasons out."""

from appliance.monitor.governor.baseline import PowerSource, SpeedKey, SpeedTracker, power_source, speed_key
from appliance.monitor.governor.heat import Heat
from appliance.monitor.governor.values import (
    CPU,
    Change,
    DeviceHeat,
    HeatView,
    Reading,
    Rule,
    Sign,
    ThermalState,
)

__all__ = [
    "CPU",
    "Change",
    "DeviceHeat",
    "Heat",
    "HeatView",
    "PowerSource",
    "Reading",
    "Rule",
    "Sign",
    "SpeedKey",
    "SpeedTracker",
    "ThermalState",
    "power_source",
    "speed_key",
]
