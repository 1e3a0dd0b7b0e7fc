"""Plan, ask the engine, plan again with what it said.

The planner searches by formula. The engine measures its choice on stubs of the model's headers; what it takes
more or less than computed corrects the formula, and the planner chooses again, until it chooses the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from appliance.engines import Build, measure
from appliance.engines.refusals import Refused
from appliance.operations.plans.subject import Subject
from appliance.paths import Paths
from appliance.planning import (
    Learned,
    MeasuredRow,
    MemoryPlan,
    Plan,
    PlanRequest,
    Reason,
    apply_measurement,
)

log = logging.getLogger("appliance.planning")

Rows = Mapping[str, MeasuredRow]
Make = Callable[[PlanRequest, Mapping[str, Learned]], Plan]
"""The planner, with everything but these two filled in."""

MAX_MEASUREMENTS = 3
ASK_S = 2.0
"""No measurement begins after this, and none but the first goes on beyond it."""
FIRST_S = 10.0
"""The first one may take this long: on a busy machine late figures are better than none."""


async def ask(
    make: Make,
    subject: Subject,
    build: Build,
    request: PlanRequest,
    learned: Mapping[str, Learned],
    paths: Paths,
) -> tuple[Plan, Rows | None]:
    """The best plan that the engine measured and that fits, with its figures; else the last measured one.

    Without any measurement the computed plan, with a reason; so it is when the engine refuses it, and then it
    does not fit. Raises what the planner raises.
    """
    began, known = time.monotonic(), dict[tuple[str, ...], tuple[Plan, Rows]]()
    plan, best = await asyncio.to_thread(make, request, learned), None
    while plan.flags not in known and len(known) < MAX_MEASUREMENTS:
        left = ASK_S - (time.monotonic() - began)
        if known and left <= 0:
            break
        try:
            rows = await _asked(build, subject, plan, paths, left if known else FIRST_S)
        except Refused as error:
            if best is not None:
                break
            return refused(plan, build, error.message), None
        if rows is None:
            break
        measured = apply_measurement(plan, rows)
        known[plan.flags] = measured, rows
        if not measured.fits and best is not None:
            break  # more was tried in vain: what fits is kept
        if measured.fits:
            best = measured
        learned, request = corrected(plan, rows, learned, request)
        plan = await asyncio.to_thread(make, request, learned)
    if not known:
        return replace(plan, reasons=(*plan.reasons, _unasked(build))), None
    taken, rows = known[best.flags] if best is not None else list(known.values())[-1]
    if len(known) > 1:
        text = f"planned {len(known)} times: the engine takes other amounts than computed"
        taken = replace(taken, reasons=(*taken.reasons, Reason("replanned", text)))
    return taken, rows


async def once(build: Build, subject: Subject, plan: Plan, paths: Paths) -> Rows | None:
    """What the engine says that this one plan takes; None where it can't be asked, or refuses it."""
    try:
        return await _asked(build, subject, plan, paths, FIRST_S)
    except Refused:
        return None


async def _asked(build: Build, subject: Subject, plan: Plan, paths: Paths, timeout_s: float) -> Rows | None:
    mode = subject.mode
    return await measure(
        build, subject.parts, plan, paths=paths, embedding=mode.embedding, reranking=mode.reranking,
        pooling=mode.pooling, draft=subject.draft_parts, timeout_s=timeout_s,
    )  # fmt: skip


def refused(plan: Plan, build: Build, sentence: str) -> Plan:
    """The plan of which the engine says that it won't take it."""
    kept = tuple(reason for reason in plan.reasons if reason.code not in ("does_not_fit", "would_fit"))
    line = Reason("refused", f"{build.build} refuses it: {sentence}")
    return replace(plan, fits=False, reasons=(*kept, line))


def corrected(
    plan: Plan, rows: Rows, learned: Mapping[str, Learned], request: PlanRequest
) -> tuple[Mapping[str, Learned], PlanRequest]:
    """What to plan with next.

    The compute buffer is what formulas guess: its ratio becomes that of the engine, so that they say of
    `plan` what the engine said. Where weights and cache are larger than computed as well and the place is
    short, the next plan may take less of it in the same proportion.
    """
    names = {device.name for device in plan.devices}
    in_ram = [row for name, row in rows.items() if name not in names]
    whole = plan.gpu_layers > plan.n_layer and not plan.cpu_moe
    known, limits = dict(learned), dict(request.limits)
    for place in (*plan.devices, plan.host):
        of_host = place is plan.host
        taken = in_ram if of_host else [rows[place.name]] if place.name in rows else []
        if not taken:
            continue
        held = sum(row.model + row.context for row in taken) - _held(place)
        more = sum(row.compute for row in taken) - place.compute + place.beside.compute + min(held, 0)
        if place.computed_compute:
            full = not plan.devices if of_host else whole
            known[place.name] = _with(known.get(place.name, Learned()), full, more / place.computed_compute)
        limit = _limit(place, max(held, 0), more)
        if limit is not None:
            limits[place.name] = limit
    return known, replace(request, limits=limits)


def _held(place: MemoryPlan) -> int:
    """Weights and cache by formula, as far as the engine's own table has them."""
    return place.model + place.kv - place.beside.model - place.beside.kv


def _limit(place: MemoryPlan, held: int, more: int) -> int | None:
    """Bytes that the next plan may take here; None when the place is not short for its weights and cache."""
    if place.free is None or not held:
        return None
    room = place.free - place.reserve - place.overhead
    computed = place.needed - place.overhead
    if computed + held + more <= room:
        return None
    return max(0, room * computed // (computed + held)) + place.overhead


def _with(before: Learned, full: bool, more: float) -> Learned:
    """A ratio that is `more` larger. The other one follows upwards while nothing is known of it."""
    old = before.full if full else before.partial
    ratio = max((1.0 if old is None else old) + more, 0.0)
    other = before.partial if full else before.full
    other = max(ratio, 1.0) if other is None else other
    return replace(before, full=ratio, partial=other) if full else replace(before, partial=ratio, full=other)


def _unasked(build: Build) -> Reason:
    if build.kind == "llama-cpp-python":
        return Reason("not_measured", "computed: llama-cpp-python can't be asked what a plan takes")
    return Reason("not_measured", f"computed: {build.build} gave no figures for it")
