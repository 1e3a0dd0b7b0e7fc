"""`make_plan`: the door of this room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from appliance.errors import UsageError
from appliance.gguf import Header
from appliance.planning import explain
from appliance.planning.cache import known_kv_type, quantised
from appliance.planning.estimate import Bytes, Candidate, Estimator, is_shared
from appliance.planning.result import MemoryPlan, Plan
from appliance.planning.search import Choice, choose
from appliance.planning.values import DeviceMemory, HostMemory, Learned, PlanRequest, Projector


def make_plan(
    header: Header,
    devices: Sequence[DeviceMemory],
    host: HostMemory,
    request: PlanRequest,
    *,
    model: str,
    engine_build: str | None,
    mmproj: Projector | None = None,
    draft: Header | None = None,
    learned: Mapping[str, Learned] | None = None,
) -> Plan:
    """The best plan for this model on this machine; `fits` is False, with reasons, when there is none.

    `engine_build` None: for a described machine, whose engine is taken to be a recent one. `learned` is what
    earlier loads taught, by device name and `Host`. `mmproj` and `draft` go with the model.
    Raises UsageError for a request that makes no sense and GgufError for a header without a model.
    """
    _check(request)
    used = usable_devices(devices, request)
    estimator = Estimator(header, used, host, request, engine_build=engine_build, learned=learned or {})
    choice = choose(estimator)
    shown = tuple(
        _memory(device.name, device.total, device.free, request.reserve, taken)
        for device, taken in zip(used, choice.estimate.devices, strict=True)
        if choice.candidate.gpu_layers
    )
    ram = _memory("Host", host.total, host.available, request.reserve, choice.estimate.host)
    reasons = [
        *explain.model_lines(estimator),
        *explain.device_lines(estimator, devices),
        *explain.choice_lines(estimator, choice),
        *explain.asked_layers_line(estimator),
        *(line for plan in shown for line in explain.memory_lines(plan, host=False, measured=False)),
        *explain.memory_lines(ram, host=True, measured=False),
        *explain.verdict_lines(estimator, choice),
    ]
    return Plan(
        model=model,
        arch=estimator.shape.arch,
        engine_build=engine_build,
        n_layer=estimator.shape.n_layer,
        gpu_layers=choice.candidate.gpu_layers,
        ctx=choice.candidate.ctx,
        parallel=choice.candidate.parallel,
        kv_type=choice.candidate.kv_type,
        flash_attn="on" if quantised(choice.candidate.kv_type) else "auto",
        n_ubatch=estimator.n_ubatch(choice.candidate.ctx),
        threads=host.threads,
        devices=shown,
        host=ram,
        fits=choice.fits,
        measured=False,
        reasons=tuple(reasons),
        flags=_flags(estimator, choice, devices),
        shared=tuple(d.name for d in used if is_shared(d)),
    )


def usable_devices(devices: Sequence[DeviceMemory], request: PlanRequest) -> tuple[DeviceMemory, ...]:
    """The devices that layers may go to: discrete ones before integrated ones, as the engine has it.

    In auto, software devices and those whose free memory is unknown stay out. Asked layers go to them all the
    same, to software devices only when there is nothing else.
    """
    if request.gpu_layers == 0:
        return ()
    real = [d for d in devices if not d.software]
    if request.gpu_layers is None:
        real = [d for d in real if d.free is not None]
    elif not real:
        return tuple(devices)
    discrete = [d for d in real if not d.integrated]
    return tuple(discrete or real[:1])


def _check(request: PlanRequest) -> None:
    for name, value in (("context", request.ctx), ("number of slots", request.parallel)):
        if value is not None and value < 1:
            raise UsageError(f"The {name} can't be {value}.", hint="Use a number from 1 up, or auto.")
    if request.kv_type is not None and not known_kv_type(request.kv_type):
        raise UsageError(f"There is no KV type {request.kv_type!r}.", hint="Use f16, q8_0 or q4_0.")


def _memory(name: str, total: int | None, free: int | None, reserve: int, taken: Bytes) -> MemoryPlan:
    spare = None if free is None else free - reserve - taken.total
    return MemoryPlan(name, total, free, reserve, taken.model, taken.kv, taken.compute, taken.overhead, spare)


def _flags(estimator: Estimator, choice: Choice, listed: Sequence[DeviceMemory]) -> tuple[str, ...]:
    """llama-server arguments. Layers, context and fit go together, else the engine's fit cuts the context."""
    taken: Candidate = choice.candidate
    flags = ["-ngl", str(taken.gpu_layers), "-c", str(taken.ctx * taken.parallel), "-np", str(taken.parallel)]
    flags += ["-fit", "off", "-ctk", taken.kv_type, "-ctv", taken.kv_type]
    flags += ["-fa", "on" if quantised(taken.kv_type) else "auto", "-ub", str(estimator.n_ubatch(taken.ctx))]
    if estimator.host.threads:
        flags += ["-t", str(estimator.host.threads)]
    names = [d.name for d in estimator.devices] if taken.gpu_layers else []
    if len(names) != len(listed):
        flags += ["-dev", ",".join(names) or "none"]
    return tuple(flags)
