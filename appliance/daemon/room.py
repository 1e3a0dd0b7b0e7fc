"""What the other resident engines leave to a model that is about to be loaded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.operations.machine.survey import Survey
from appliance.planning import HOST, Plan


@dataclass(frozen=True, slots=True)
class Room:
    """Without other engines and without a budget: all of the machine."""

    staying: frozenset[int] = frozenset()
    """Processes of engines that stay: what they hold is not free, their mapped files included."""
    budget: int | None = None
    """Bytes of each memory that all engines together may take; None: what there is."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """Bytes that the engines which stay take, as planned, by device name and `Host`."""
    shunned: frozenset[str] = frozenset()
    """Devices that are listed and of no use."""

    def limits_on(self, looked: Survey) -> Mapping[str, int]:
        """Bytes that may be taken of each memory of this machine, within the budget."""
        of_no_use = dict.fromkeys(self.shunned, 0)
        if self.budget is None:
            return of_no_use
        devices = looked.choice.build.devices if looked.choice is not None else ()
        places = (*(device.name for device in devices), HOST)
        return {place: max(0, self.budget - self.taken.get(place, 0)) for place in places} | of_no_use


def needed(plan: Plan) -> Mapping[str, int]:
    """Bytes that a plan takes of each memory."""
    return {device.name: device.needed for device in plan.devices} | {HOST: plan.host.needed}


def together(plans: list[Plan]) -> Mapping[str, int]:
    """The same of several."""
    total: dict[str, int] = {}
    for plan in plans:
        for place, n_bytes in needed(plan).items():
            total[place] = total.get(place, 0) + n_bytes
    return total


def least(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    """The smaller limit of each place that either names."""
    return {
        place: min(limits[place] for limits in (one, other) if place in limits) for place in {**one, **other}
    }
