"""Whether a model fits, in one word: from its plan, or from its size alone where no header is here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from appliance.planning.choice.estimate import ENGINE_PROCESS, driver_overhead, is_shared
from appliance.planning.plan import usable_devices
from appliance.planning.result import Plan
from appliance.planning.values import DeviceMemory, HostMemory, PlanRequest
from appliance.units import MIB, size

Where = Literal["gpu", "partly", "cpu", "no"]
"""All on the GPU; a part of it there; in RAM; nowhere."""
FitHow = Literal["measured", "computed", "rule"]
"""By the engine's own figures; from the header; by a rule of thumb from the size alone."""

_BASE = 384 * MIB
_SHARE = 0.1
_MOST = 1_536 * MIB
"""Cache and buffers of the smallest chat plan (2 slots of 4,096 tokens) beside the weights: `_BASE` and a
tenth of them, at most `_MOST`. Held against the models of public logs by `tests/planning/test_rough.py`."""
_FULL_CTX = 8_192
_LEAST_PART = 0.1
"""A GPU that can't even hold this share of the weights is not worth a split."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a model fits this machine. `where` None: it can't be known; the text says why."""

    where: Where | None
    text: str
    """One line for people."""
    how: FitHow

    @property
    def estimated(self) -> bool:
        """From the size of the files alone."""
        return self.how == "rule"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"estimated": self.estimated}


def fit_of(plan: Plan) -> Fit:
    """What a plan comes to."""
    slots = f"{plan.parallel} x {plan.ctx:,} tokens"
    how: FitHow = "measured" if plan.measured else "computed"
    if not plan.fits:
        short = [memory for memory in (*plan.devices, plan.host) if (memory.spare or 0) < 0]
        lacking = ", ".join(f"{memory.name} lacks {size(-(memory.spare or 0))}" for memory in short)
        return Fit("no", lacking or "it does not fit", how)
    names = " and ".join(memory.name for memory in plan.devices)
    if plan.gpu_layers == 0:
        return Fit("cpu", f"in RAM, {slots}", how)
    if plan.gpu_layers > plan.n_layer:
        return Fit("gpu", f"all layers on {names}, {slots}", how)
    return Fit("partly", f"{plan.gpu_layers} of {plan.n_layer + 1} layers on {names}, {slots}", how)


def rough_fit(
    weights: int,
    context: int | None,
    devices: Sequence[DeviceMemory],
    host: HostMemory,
    request: PlanRequest,
) -> Fit:
    """Where a model of `weights` bytes would fit, before any of it is here: by rule.

    `context` is what it was trained on, in tokens (None: unknown). A number of layers that was asked for is
    not looked at, but for none at all.
    """
    used = usable_devices(devices, PlanRequest(gpu_layers=0 if request.gpu_layers == 0 else None))
    beside = _beside(weights, context)
    rooms = [max(0, (d.free or 0) - request.reserve - driver_overhead(d)) for d in used]
    room = sum(rooms)
    ram = None if host.available is None else host.available - request.reserve - ENGINE_PROCESS
    shared = any(is_shared(device) for device in used)
    need = weights + beside
    names = " and ".join(device.name for device in used)
    if used and room >= need and (not shared or ram is None or ram >= need):
        return Fit("gpu", f"about {size(need)} of {size(room)} on {names}", "rule")
    part = max(0, room - beside)
    if not shared and part >= weights * _LEAST_PART and ram is not None and ram >= need - part:
        return Fit("partly", f"about {part * 100 // weights} % of it on {names}, the rest in RAM", "rule")
    if ram is None:
        return Fit(None, "how much memory is free is not known", "rule")
    if ram >= need:
        return Fit("cpu", f"about {size(need)} of {size(ram)} of RAM", "rule")
    there = f"{size(room)} on {names} and " if room and not shared else ""
    return Fit("no", f"about {size(need)} is needed; {there}{size(max(ram, 0))} of RAM can be had", "rule")


def _beside(weights: int, context: int | None) -> int:
    """Cache and buffers that the smallest plan needs beside the weights."""
    share = 1.0 if not context else min(1.0, context / _FULL_CTX)
    return int(min(_BASE + weights * _SHARE, _MOST) * max(share, 0.25))
