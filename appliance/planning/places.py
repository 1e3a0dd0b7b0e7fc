"""The account of each place of a choice, in bytes."""

from __future__ import annotations

from appliance.planning.choice.candidate import Bytes
from appliance.planning.choice.estimate import Estimator
from appliance.planning.choice.search import Choice
from appliance.planning.result import Beside, MemoryPlan, OverheadHow
from appliance.planning.values import HOST


def device_memory(estimator: Estimator, index: int, choice: Choice) -> MemoryPlan:
    """Of one device that takes part."""
    device = estimator.devices[index]
    how: OverheadHow = "typical" if estimator.learned(device.name).overhead is None else "learned"
    taken = choice.estimate.devices[index]
    free = _free(device.free, device.ours)
    on_gpu, _ = estimator.beside(choice.candidate)
    first = estimator.used(choice.candidate)[0] == index
    return _memory(
        device.name, device.total, free, estimator.request.reserve, taken, how, on_gpu if first else Bytes()
    )


def host_memory(estimator: Estimator, choice: Choice) -> MemoryPlan:
    """Of RAM."""
    host = estimator.host
    free = _free(host.available, host.ours)
    _, in_ram = estimator.beside(choice.candidate)
    return _memory(HOST, host.total, free, estimator.request.reserve, choice.estimate.host, "typical", in_ram)


def _free(free: int | None, ours: int) -> int | None:
    """What will be free once the model that is served now has gone."""
    return None if free is None else free + ours


def _memory(
    name: str,
    total: int | None,
    free: int | None,
    reserve: int,
    taken: Bytes,
    how: OverheadHow,
    beside: Bytes,
) -> MemoryPlan:
    spare = None if free is None else free - reserve - taken.total
    return MemoryPlan(
        name, total, free, reserve, taken.model, taken.kv, taken.compute, taken.overhead, spare,
        overhead_how=how, beside=Beside(beside.model, beside.kv, beside.compute),
        computed_compute=taken.formula,
    )  # fmt: skip
