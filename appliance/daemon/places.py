"""Where a loaded model runs, in the monitor's names: GPU ids and `cpu`. Pure.

Heat counts for a model by these places. Where it is not sure which GPU one of its devices is (two cards of
one name), nothing is said, and the heat of the whole machine counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from appliance.daemon.driver_memory import views_by_device
from appliance.daemon.served import ServingSnapshot
from appliance.monitor import CPU, GpuView
from appliance.planning import Plan

Places = frozenset[str]
NOWHERE: Places = frozenset()
"""Not known: the whole machine counts."""
_RUNS = ("starting", "loading", "ready", "busy", "stopping")


def places_of(serving: ServingSnapshot, gpus: Sequence[GpuView]) -> Places:
    """The places of one model."""
    plan, looked = serving.plan, serving.survey
    if plan is None:
        return NOWHERE
    names = _gpu_devices(serving)
    found = {CPU} if _partly_on_cpu(plan) or not names else set()
    if names and looked is None:
        return NOWHERE
    views = views_by_device(looked, gpus) if looked is not None and names else {}
    for name in names:
        if name not in views:
            return NOWHERE
        found.add(views[name].id)
    return frozenset(found)


def used_by(everyone: Iterable[ServingSnapshot], gpus: Sequence[GpuView]) -> Places | None:
    """The places of all engines that run; None where one is not known."""
    found = [places_of(one, gpus) for one in everyone if one.engine is not None and one.state in _RUNS]
    return frozenset().union(*found) if found and all(found) else None


def gpus_used(everyone: Iterable[ServingSnapshot]) -> bool:
    """Some engine that runs has its model, or a part of it, on a GPU; or may have, as far as is known."""
    return any(
        one.plan is None or bool(_gpu_devices(one))
        for one in everyone
        if one.engine is not None and one.state in _RUNS
    )


def _gpu_devices(serving: ServingSnapshot) -> list[str]:
    """The plan's devices that are GPUs: one made of the CPU is none."""
    if serving.plan is None:
        return []
    choice = serving.survey.choice if serving.survey is not None else None
    software = {device.name for device in choice.build.devices if device.software} if choice else set()
    return [device.name for device in serving.plan.devices if device.name not in software]


def _partly_on_cpu(plan: Plan) -> bool:
    return plan.gpu_layers < plan.n_layer + 1 or bool(plan.cpu_moe)
