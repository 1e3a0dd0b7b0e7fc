"""The account of each place of a choice, in bytes."""

from __future__ import annotations

from appliance.planning.choice.candidate import Bytes
from appliance.planning.choice.estimate import Estimator
from appliance.planning.choice.search import Choice
from appliance.planning.memory.compute import output_bytes
from appliance.planning.result import Beside, MemoryPlan, OverheadHow
from appliance.planning.values import HOST, DeviceMemory, HostMemory


def device_memory(estimator: Estimator, index: int, choice: Choice) -> MemoryPlan:
    """Of one device that takes part."""
    device = estimator.devices[index]
    how: OverheadHow = "typical" if estimator.learned(device.name).overhead is None else "learned"
    there, _ = estimator.beside(choice.candidate)
    taken = choice.estimate.devices[index]
    beside = there[estimator.used(choice.candidate).index(index)]
    return _memory(device.name, device, device.free, estimator.request.reserve, taken, how, beside)


def host_memory(estimator: Estimator, choice: Choice) -> MemoryPlan:
    """Of RAM."""
    host, taken = estimator.host, choice.estimate.host
    _, beside = estimator.beside(choice.candidate)
    beside += Bytes(compute=output_bytes(estimator.shape, choice.candidate.parallel))  # in no table of it
    return _memory(HOST, host, host.available, estimator.request.reserve, taken, "typical", beside)


def _memory(
    name: str,
    place: DeviceMemory | HostMemory,
    free: int | None,
    reserve: int,
    taken: Bytes,
    how: OverheadHow,
    beside: Bytes,
) -> MemoryPlan:
    ours = 0 if free is None else place.ours
    free = None if free is None else free + ours  # it goes when another model is loaded
    return MemoryPlan(
        name=name,
        total=place.total,
        free=free,
        reserve=reserve,
        model=taken.model,
        kv=taken.kv,
        compute=taken.compute,
        overhead=taken.overhead,
        spare=None if free is None else free - reserve - taken.total,
        overhead_how=how,
        ours=ours,
        beside=Beside(beside.model, beside.kv, beside.compute),
        computed_compute=taken.formula,
    )
