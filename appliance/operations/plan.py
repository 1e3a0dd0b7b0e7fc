"""Header + survey + wishes -> a plan that the engine itself has measured where it can."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from appliance.engines import Build, measure
from appliance.errors import DoesNotFit
from appliance.gguf import Header, StubPart, read_header
from appliance.operations.models import Library, file_or_name
from appliance.operations.survey import Survey, survey
from appliance.paths import Paths
from appliance.planning import (
    DeviceMemory,
    HostMemory,
    Plan,
    PlanRequest,
    Reason,
    apply_measurement,
    make_plan,
)
from appliance.planning.values import Profile, Split
from appliance.settings import Settings

MAX_STEPS = 4
"""How often a measured candidate that does not fit is stepped down before the last one is shown as it is."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for; None leaves the number to the planner."""

    ctx: int | None = None
    parallel: int | None = None
    gpu_layers: int | None = None
    kv: str | None = None
    engine: str | None = None
    ubatch: int | None = None
    cpu_moe: int | None = None
    split: Split | None = None
    profile: Profile | None = None
    draft: str | None = None
    """A smaller model that proposes tokens: a name or a file."""


def request_for(settings: Settings, wishes: Wishes, *, embedding: bool = False) -> PlanRequest:
    """The wishes, then the settings, then the planner's own choice."""
    engine = settings.engine

    def number(wish: int | None, setting: int | str) -> int | None:
        if wish is not None:
            return wish
        return setting if isinstance(setting, int) else None

    return PlanRequest(
        ctx=number(wishes.ctx, engine.ctx),
        parallel=number(wishes.parallel, engine.parallel),
        gpu_layers=number(wishes.gpu_layers, engine.gpu_layers),
        kv_type=wishes.kv,
        reserve=settings.planning.reserve,
        kv_floor=settings.planning.kv_floor,
        profile=wishes.profile or engine.profile,
        embedding=embedding,
        n_ubatch=wishes.ubatch,
        cpu_moe=wishes.cpu_moe,
        split=wishes.split or "layer",
        decode_goal=settings.goals.decode,
    )


async def plan_file(
    file: Path,
    *,
    model: str,
    looked: Survey,
    request: PlanRequest,
    paths: Paths,
    ask_engine: bool = True,
) -> Plan:
    """Plan a GGUF file for this machine.

    Raises GgufError for a broken header and EngineError when no engine can be used.
    """
    header = await asyncio.to_thread(read_header, file)
    build = looked.build()
    return await _search(
        header, file, model, build, looked.devices(), looked.host(), request, paths, ask_engine
    )


def require_fit(plan: Plan) -> Plan:
    """The plan, or DoesNotFit with what is missing and the smallest change that would fit."""
    if plan.fits:
        return plan
    raise DoesNotFit(
        f"{plan.model} does not fit this machine.",
        cause=" ".join(reason.text for reason in plan.reasons[-3:]),
        hint=f"`appliance plan {plan.model}` shows the figures; "
        "try a smaller --ctx, fewer slots (--parallel 1) or a smaller quant.",
    )


async def _search(
    header: Header,
    file: Path,
    model: str,
    build: Build,
    devices: tuple[DeviceMemory, ...],
    host: HostMemory,
    request: PlanRequest,
    paths: Paths,
    ask_engine: bool,
) -> Plan:
    wanted, notes = _for_build(build, request)
    parts = (StubPart(file.name, file, header.file_size or 0, header.data_offset),)
    plan = make_plan(header, devices, host, wanted, model=model, engine_build=build.build)
    for step in range(MAX_STEPS if ask_engine and plan.fits else 0):
        rows = await measure(build, parts, plan, paths=paths, embedding=request.embedding)
        if rows is None:
            break
        measured = apply_measurement(plan, rows)
        stuck = request.gpu_layers is not None or plan.gpu_layers == 0 or step == MAX_STEPS - 1
        if measured.fits or stuck:
            plan = measured
            break
        fewer = _step_down(measured)
        plan = make_plan(
            header, devices, host, replace(wanted, gpu_layers=fewer), model=model, engine_build=build.build
        )
        notes = (
            *notes,
            Reason("step_down", f"the engine measured more than computed: {fewer} layers now", None),
        )
    return replace(plan, reasons=(*plan.reasons, *notes)) if notes else plan


def _for_build(build: Build, request: PlanRequest) -> tuple[PlanRequest, tuple[Reason, ...]]:
    """llama-cpp-python's server answers one request at a time: more slots would only divide the context."""
    if build.kind != "llama-cpp-python" or request.parallel == 1:
        return request, ()
    text = "1 slot: llama-cpp-python's server answers one request at a time"
    return replace(request, parallel=1), (Reason("slots_engine", text, None),)


def _step_down(plan: Plan) -> int:
    """Fewer layers by what is missing on the fullest device, at least one."""
    missing = max((-(device.spare or 0) for device in plan.devices), default=0)
    used = sum((device.model or 0) + (device.kv or 0) for device in plan.devices)
    per_layer = used // plan.gpu_layers if plan.gpu_layers else 0
    return max(0, plan.gpu_layers - max(1, -(-missing // per_layer) if per_layer > 0 else 1))


async def plan_by_name(library: Library, body: Mapping[str, Any], ask_engine: bool = True) -> Plan:
    """Plan a model that is here, or a GGUF file: the work of the `plan` command and of `/api/plan`.

    `body` holds `model` and the wishes `ctx`, `parallel`, `kv`, `gpu_layers` (None: the planner's choice).
    Raises UnknownModel, ModelMissing, GgufError or EngineError.
    """
    name = str(body.get("model") or "")
    wishes = Wishes(
        ctx=body.get("ctx"),
        parallel=body.get("parallel"),
        kv=body.get("kv"),
        gpu_layers=body.get("gpu_layers"),
    )
    file = file_or_name(name)
    if file is None:
        ref = library.resolve(name)
        stored = await library.require(ref)
        file, label, embedding = stored.main, ref.ref, "embedding" in ref.model.use
    else:
        label, embedding = file.name, False
    request = request_for(library.settings, wishes, embedding=embedding)
    looked = await survey(library.settings)
    return await plan_file(
        file, model=label, looked=looked, request=request, paths=library.paths, ask_engine=ask_engine
    )
