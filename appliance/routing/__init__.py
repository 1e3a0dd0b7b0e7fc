"""Pure: request features and a view of the machine -> where the request goes, and why."""

from __future__ import annotations

from appliance.monitor.governor.values import ThermalState
from appliance.routing.after import FAILED_NOW, after_failure, after_wait
from appliance.routing.codes import REASONS
from appliance.routing.decide import decide
from appliance.routing.rules import COLD, heat
from appliance.routing.spared import ON_BATTERY, saves
from appliance.routing.types import (
    BatteryPolicy,
    Decision,
    Features,
    Kind,
    Lane,
    LocalView,
    Policy,
    RemoteView,
    Side,
    Target,
    View,
    Wish,
)

__all__ = [
    "COLD",
    "FAILED_NOW",
    "ON_BATTERY",
    "REASONS",
    "BatteryPolicy",
    "Decision",
    "Features",
    "Kind",
    "Lane",
    "LocalView",
    "Policy",
    "RemoteView",
    "Side",
    "Target",
    "ThermalState",
    "View",
    "Wish",
    "after_failure",
    "after_wait",
    "decide",
    "heat",
    "saves",
]
