"""What a load's log says beside what its plan said, place by place. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.engines.logparse import on_host
from appliance.planning import MemoryPlan, Plan
from appliance.planning.values import HOST
from appliance.units import MIB

_SAME_WEIGHTS = 0.05
"""Weights may differ by this share before the load counts as another split than the planned one."""
_TELLING = 4 * MIB
"""Compute buffers below this are too small for a ratio."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One place after a load."""

    total: int | None
    """Bytes of the device."""
    full: bool
    """Of a device: the whole model is on GPUs. Of RAM: no device is used."""
    ratio: float | None
    """Real over computed compute buffer; None: it can't be compared."""
    overhead: int | None
    """Bytes that the driver takes beside the buffers; None: it does not tell."""


def seen_of(
    plan: Plan, buffers: Mapping[str, Mapping[str, float]], driver_used: Mapping[str, int]
) -> Mapping[str, Seen]:
    """By place of the plan. `buffers` in MiB by buffer and purpose, `driver_used` in bytes by device.

    `buffers` are those of the model alone. The driver does not tell a projector, a draft model or an adapter
    apart, so with one of them nothing is learned about its own part.
    """
    alone = plan.mmproj is None and plan.draft is None and not plan.adapters
    full = plan.cpu_moe == 0 and plan.gpu_layers > plan.n_layer
    real = {device.name: _purposes(buffers, device.name) for device in plan.devices}
    as_planned = all(_same_weights(device, real[device.name]) for device in plan.devices)
    found: dict[str, Seen] = {}
    for device in plan.devices:
        mine, used = real[device.name], driver_used.get(device.name)
        beside = None if used is None or not mine or not alone else used - int(sum(mine.values()) * MIB)
        overhead = beside if beside is None or beside >= 0 else None  # it can't hold less than its buffers
        found[device.name] = Seen(device.total, full, _ratio(device, mine) if as_planned else None, overhead)
    ram = _ratio(plan.host, _purposes(buffers, HOST)) if as_planned else None
    found[HOST] = Seen(plan.host.total, not plan.devices, ram, None)
    return found


def device_of(buffer: str) -> str:
    """The place of a buffer: `CUDA0` for `CUDA0` and `CUDA0_Split`, `Host` for everything in RAM."""
    return HOST if on_host(buffer) else buffer.partition("_")[0]


def _purposes(buffers: Mapping[str, Mapping[str, float]], place: str) -> Mapping[str, float]:
    """MiB by purpose at one place. Rows of repacked weights hold weights alone."""
    found: dict[str, float] = {}
    for name, sizes in buffers.items():
        if device_of(name) == place:
            for purpose, size in sizes.items():
                found[purpose] = found.get(purpose, 0.0) + size
    return found


def _same_weights(planned: MemoryPlan, real: Mapping[str, float]) -> bool:
    """The device holds what the plan put there. In RAM that can't be told: mapped files count as a whole."""
    weights = planned.model - planned.beside.model
    return abs(real.get("model", 0.0) * MIB - weights) <= max(weights * _SAME_WEIGHTS, 4 * MIB)


def _ratio(planned: MemoryPlan, real: Mapping[str, float]) -> float | None:
    base = planned.computed_compute
    compute = real.get("compute", 0.0) * MIB
    return compute / base if base is not None and base >= _TELLING and compute > 0 else None
