"""What of the settings a replay is made under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from appliance.monitor.governor import Rule
from appliance.routing import BatteryPolicy, Policy
from appliance.settings import Settings


@dataclass(frozen=True, slots=True)
class Under:
    """The sections `[governor]`, `[routing]` and `[goals]`, as far as they decide."""

    name: str
    """Where they come from, for people."""
    rule: Rule
    policy: Policy
    max_wait_s: float
    max_queue: int
    goal_ttft_s: float
    goal_decode_per_s: float
    battery: BatteryPolicy

    @staticmethod
    def of(settings: Settings, name: str) -> Under:
        governor, routing, goals = settings.governor, settings.routing, settings.goals
        rule = Rule(governor.slow, governor.throttle_margin, governor.hold, governor.dwell)
        return Under(
            name, rule, routing.policy, routing.max_wait, routing.max_queue, goals.ttft, goals.decode,
            governor.battery,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """By the names of the settings."""
        return {
            "name": self.name,
            "governor.slow": self.rule.slow, "governor.throttle_margin": self.rule.throttle_margin,
            "governor.hold": self.rule.hold, "governor.dwell": self.rule.dwell,
            "governor.battery": self.battery, "routing.policy": self.policy,
            "routing.max_wait": self.max_wait_s, "routing.max_queue": self.max_queue,
            "goals.ttft": self.goal_ttft_s, "goals.decode": self.goal_decode_per_s,
        }  # fmt: skip
