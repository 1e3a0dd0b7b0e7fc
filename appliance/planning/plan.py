"""`make_plan`: the door of this room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from appliance.errors import UsageError
from appliance.gguf import Header
from appliance.planning.choice import change, reuse
from appliance.planning.choice.estimate import Estimator, is_shared
from appliance.planning.choice.search import Choice, choose
from appliance.planning.choice.splits import counts
from appliance.planning.flags import Flags
from appliance.planning.memory.cache import known_kv_type, quantised
from appliance.planning.places import device_memory, host_memory
from appliance.planning.result import N_BATCH, Applied, MemoryPlan, Plan, Reason, Speed
from appliance.planning.speed.rule import how_of
from appliance.planning.values import DeviceMemory, HostMemory, Learned, Lora, PlanRequest, Projector
from appliance.planning.words import accounts, explain


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
    adapters: Sequence[Lora] = (),
    learned: Mapping[str, Learned] | None = None,
) -> Plan:
    """The best plan for this model on this machine; `fits` is False, with reasons, when there is none.

    `engine_build` None: for a described machine, whose engine is taken to be a recent one. `learned` is what
    earlier loads taught, by device name and `Host`. `mmproj`, `draft` and `adapters` go with the model.
    Raises UsageError for a request that makes no sense and GgufError for a header without a model.
    """
    _check(request)
    estimator = Estimator(
        header,
        usable_devices(devices, request),
        host,
        request,
        engine_build=engine_build,
        mmproj=mmproj,
        draft=draft,
        adapters=adapters,
        learned=learned or {},
    )
    _check_cache(estimator)
    return _plan(estimator, choose(estimator), devices, model, engine_build)


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
    numbers = (
        ("context", request.ctx),
        ("number of slots", request.parallel),
        ("micro-batch", request.n_ubatch),
    )
    for name, value in numbers:
        if value is not None and value < 1:
            raise UsageError(f"The {name} can't be {value}.", hint="Use a number from 1 up, or auto.")
    if request.cpu_moe is not None and request.cpu_moe < 0:
        raise UsageError(f"There are no {request.cpu_moe} blocks.", hint="Use 0 or more, or auto.")
    if request.kv_type is not None and not known_kv_type(request.kv_type):
        raise UsageError(f"There is no KV type {request.kv_type!r}.", hint="Use f16, q8_0 or q4_0.")


def _plan(
    estimator: Estimator,
    choice: Choice,
    listed: Sequence[DeviceMemory],
    model: str,
    engine_build: str | None,
) -> Plan:
    taken, shape = choice.candidate, estimator.shape
    used = estimator.used(taken)
    shown = tuple(device_memory(estimator, index, choice) for index in used)
    ram, speed = host_memory(estimator, choice), _speed(estimator, choice)
    flags = _flags(estimator, choice, listed)
    return Plan(
        model=model,
        arch=shape.arch,
        engine_build=engine_build,
        n_layer=shape.n_layer,
        gpu_layers=flags.gpu_layers,
        ctx=taken.ctx,
        parallel=flags.parallel,
        kv_type=flags.kv_type,
        flash_attn=flags.flash_attn,
        n_ubatch=flags.n_ubatch,
        n_batch=flags.n_batch,
        threads=flags.threads,
        cache_reuse=flags.cache_reuse,
        devices=shown,
        host=ram,
        fits=choice.fits,
        measured=False,
        reasons=tuple(_reasons(estimator, choice, listed, shown, ram, speed)),
        flags=flags.render(),
        shared=tuple(estimator.devices[i].name for i in used if is_shared(estimator.devices[i])),
        cpu_moe=flags.cpu_moe,
        split=flags.split,
        tensor_split=flags.tensor_split,
        mmproj=taken.mmproj,
        draft=taken.draft,
        adapters=tuple(Applied(one.name, one.scale, one.sha256, one.n_bytes) for one in estimator.adapters),
        speed=speed,
        reads=estimator.reads(taken, 0),
        reads_full=estimator.reads(taken, taken.ctx),
    )


def _check_cache(estimator: Estimator) -> None:
    """The engine refuses a quantised cache whose rows are no whole blocks of 32 elements per head."""
    shape, asked = estimator.shape, estimator.request.kv_type
    if asked is None or not quantised(asked) or not any(shape.cache_layers):
        return
    if shape.head_k % 32 or shape.head_v % 32:
        raise UsageError(
            f"A {asked} cache is not possible with this model.",
            cause=f"Its heads have {shape.head_k} elements, and such a cache stores blocks of 32.",
            hint="Use `--kv f16`, or leave it to the planner.",
        )


def _reasons(
    estimator: Estimator,
    choice: Choice,
    listed: Sequence[DeviceMemory],
    shown: Sequence[MemoryPlan],
    ram: MemoryPlan,
    speed: Speed | None,
) -> list[Reason]:
    return [
        *explain.model_lines(estimator),
        *explain.device_lines(estimator, listed, choice.candidate, fits=choice.fits),
        *accounts.held_lines(listed),
        *explain.choice_lines(estimator, choice),
        *explain.asked_lines(estimator),
        *reuse.lines(estimator),
        *(line for memory in shown for line in accounts.memory_lines(memory, host=False)),
        *accounts.memory_lines(ram, host=True),
        *explain.speed_lines(speed),
        *change.verdict_lines(estimator, choice),
    ]


def _speed(estimator: Estimator, choice: Choice) -> Speed | None:
    taken = choice.candidate
    empty, full = estimator.speed(taken, 0), estimator.speed(taken, taken.ctx)
    if empty is None or full is None:
        return None
    return Speed(empty, full, how_of(estimator.reads(taken, 0)))


def _flags(estimator: Estimator, choice: Choice, listed: Sequence[DeviceMemory]) -> Flags:
    taken, request = choice.candidate, estimator.request
    names = tuple(estimator.devices[index].name for index in estimator.used(taken))
    several = len(names) > 1
    return Flags(
        gpu_layers=taken.gpu_layers,
        ctx_total=taken.ctx * taken.parallel,
        parallel=taken.parallel,
        kv_type=taken.kv_type,
        flash_attn="on" if quantised(taken.kv_type) or (several and request.split == "tensor") else "auto",
        n_ubatch=taken.n_ubatch,
        # the engine cuts a micro-batch to its batch; texts of one batch have to fit into one micro-batch
        n_batch=taken.n_ubatch if estimator.for_vectors else max(N_BATCH, taken.n_ubatch),
        threads=estimator.host.threads,
        cache_reuse=reuse.tokens(estimator),
        split=request.split if several else "layer",
        tensor_split=counts(estimator, taken) if several else (),
        cpu_moe=taken.cpu_moe if names else 0,
        mmproj="cpu" if taken.mmproj == "cpu" else None,
        draft=taken.draft,
        devices=None if len(names) == len(listed) else names,
    )
