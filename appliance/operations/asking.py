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
from appliance.operations.headers import Subject
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

    Without any measurement the computed plan, with a reason. Raises what the planner raises.
    """
    began, known = time.monotonic(), dict[tuple[str, ...], tuple[Plan, Rows]]()
    plan, best = await asyncio.to_thread(make, request, learned), None
    while plan.flags not in known and len(known) < MAX_MEASUREMENTS:
        left = ASK_S - (time.monotonic() - began)
        if known and left <= 0:
            break
        rows = await measure(
            build, subject.parts, plan, paths=paths, embedding=request.embedding,
            draft=subject.draft_parts, timeout_s=left if known else FIRST_S,
        )  # fmt: skip
        if rows is None:
            break
        measured = apply_measurement(plan, rows)
        known[plan.flags] = measured, rows
        if measured.fits:
            best = measured
        learned, request = corrected(plan, rows, learned, request)
        plan = await asyncio.to_thread(make, request, learned)
    if not known:
        return replace(plan, reasons=(*plan.reasons, _unasked(build))), None
    taken, rows = known[best.flags] if best is not None else list(known.values())[-1]
    return taken, rows


def corrected(
    plan: Plan, rows: Rows, learned: Mapping[str, Learned], request: PlanRequest
) -> tuple[Mapping[str, Learned], PlanRequest]:
    """What to plan with next: with it, the formulas say of `plan` what the engine said.

    Everything that differs is put down to the compute buffer, which is the only figure that formulas guess.
    Where they know none, a place that is short may simply take less.
    """
    names = {device.name for device in plan.devices}
    in_ram = [row for name, row in rows.items() if name not in names]
    whole = plan.gpu_layers > plan.n_layer and not plan.cpu_moe
    known, limits = dict(learned), dict(request.limits)
    for place in (*plan.devices, plan.host):
        taken = [rows[place.name]] if place is not plan.host and place.name in rows else []
        taken = in_ram if place is plan.host else taken
        if not taken:
            continue
        full = whole if place is not plan.host else not plan.devices
        more = sum(row.model + row.context + row.compute for row in taken) - _engines(place)
        if place.computed_compute:
            known[place.name] = _with(known.get(place.name, Learned()), full, more / place.computed_compute)
        elif more > 0 and place.free is not None:
            limits[place.name] = max(0, place.free - place.reserve - more)
    return known, replace(request, limits=limits)


def _engines(place: MemoryPlan) -> int:
    """What the formulas say of the engine's own table: without driver, projector and draft model."""
    beside = place.beside
    return place.model + place.kv + place.compute - beside.model - beside.kv - beside.compute


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
