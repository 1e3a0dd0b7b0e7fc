"""A subject, a look at the machine and wishes -> a plan that the engine itself has measured where it can."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from appliance.engines import Build
from appliance.errors import DoesNotFit
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey
from appliance.operations.plans import asking
from appliance.operations.plans.engine_limits import within
from appliance.operations.plans.subject import Subject
from appliance.operations.plans.wishes import Wishes as Wishes
from appliance.operations.plans.wishes import request_for as request_for
from appliance.operations.tuning import applying
from appliance.operations.tuning.fitting import Ground
from appliance.paths import Paths
from appliance.planning import Learned, Plan, PlanRequest, Reason, apply_measurement, make_plan
from appliance.planning.stepdown import (
    MAX_STEPS,
    given_up,
    is_less,
    limits_after,
    remembered_line,
    with_end,
)  # fmt: skip
from appliance.units import size


async def plan_subject(
    subject: Subject,
    *,
    looked: Survey,
    request: PlanRequest,
    paths: Paths,
    lessons: Lessons | None = None,
    ask_engine: bool = True,
    tuned: bool = True,
) -> Plan:
    """Plan for this machine with what earlier loads taught, measured by the engine where it can be asked.

    The figures of a measured plan are the engine's own for exactly its flags. What ran out of memory before
    is not planned again as long as that counts (reasons `ran_out_before`, `ran_out_here`). `tuned`: with the
    settings that `bench tune` found to be the best here.

    Raises GgufError for a header without a model, UsageError for wishes that make no sense, EngineError when
    no engine can be used.
    """
    build = looked.build()
    devices, host = looked.devices(), looked.host()
    subject, wanted, notes = within(build, devices, subject, request)

    def make(wish: PlanRequest, learned: Mapping[str, Learned]) -> Plan:
        return make_plan(
            subject.header, devices, host, wish, model=subject.label, engine_build=build.build,
            mmproj=subject.mmproj, draft=subject.draft, adapters=subject.adapters,
            learned=learned,
        )  # fmt: skip

    learned = await asyncio.to_thread(_lessons_of, lessons, subject, build)

    async def one(wish: PlanRequest) -> Plan:
        if not ask_engine:
            return await asyncio.to_thread(make, wish, learned)
        plan, rows = await asking.ask(make, subject, build, wish, learned, paths)
        if lessons is not None and rows is not None:
            await asyncio.to_thread(lessons.note_measured, subject.key, build.build, plan.flags, rows)
        return plan

    async def smaller(wish: PlanRequest) -> Plan:
        """The same without asking again about a plan that the engine has measured: there may be several."""
        plan = await asyncio.to_thread(make, wish, learned)
        known = await asyncio.to_thread(_measured_before, lessons, subject, build, plan)
        return known if ask_engine and known is not None and known.fits else await one(wish)

    plan = await one(wanted)
    if lessons is not None:
        plan = await _unlike_before(plan, wanted, smaller, lessons, subject, build)
        if tuned:
            ground = Ground(subject, build, devices, host, wanted, paths, lessons, ask_engine)
            plan = await applying.applied(plan, ground)
    if not subject.here:
        text = "the header is not verified yet: only the download proves it"
        notes = (*notes, Reason("header_unverified", text))
    notes = (*notes, *subject.notes, *_threads_line(plan, looked))
    return replace(plan, reasons=(*plan.reasons, *notes)) if notes else plan


def _threads_line(plan: Plan, looked: Survey) -> tuple[Reason, ...]:
    """Which cores the threads of a plan for the CPU are meant for."""
    fast = looked.machine.cores_performance
    if plan.devices or not plan.fits or plan.threads is None:
        return ()
    if plan.threads == fast:
        kind = "the physical performance cores that may be used"
    elif fast is None and plan.threads == looked.machine.cores_physical:
        kind = "all physical cores that may be used: which of them are fast is not told here"
    else:
        return ()
    return (Reason("threads", f"{plan.threads} threads: {kind}"),)


async def _unlike_before(
    first: Plan,
    request: PlanRequest,
    with_less: Callable[[PlanRequest], Awaitable[Plan]],
    lessons: Lessons,
    subject: Subject,
    build: Build,
) -> Plan:
    """Past the plans that ran out of memory in earlier loads, as far as smaller ones are to be had."""
    plan, lines, limits, until = first, tuple[Reason, ...](), request.limits, 0.0
    while len(lines) < MAX_STEPS:
        before = await asyncio.to_thread(lessons.ran_out, subject.sha256, build.build, plan, path=build.path)
        if before is None:
            break
        limits = limits_after(plan, before.where, len(lines) + 1, limits)
        smaller = await with_less(replace(request, limits=limits))
        now = smaller if is_less(smaller, plan) else None
        lines = (*lines, remembered_line(plan, before.where, now, applying.moment(before.at)))
        until = max(until, before.until)
        if now is None:
            break
        plan = now
    if not lines:
        return plan
    lines = with_end(lines, subject.label, applying.moment(until))
    return replace(plan, given_up=given_up(first, plan), reasons=(*plan.reasons, *lines))


def require_fit(plan: Plan, budget: int | None = None) -> Plan:
    """The plan, or DoesNotFit with what is missing and the smallest change that would fit.

    `budget`: bytes of each memory that `models.memory` allows.
    """
    if plan.fits:
        return plan
    refused = next((reason.text for reason in plan.reasons if reason.code == "refused"), None)
    if refused is not None:
        raise DoesNotFit(
            f"The engine refuses {plan.model}.",
            cause=refused,
            hint="Another engine or a newer build may take it: `appliance engines list`.",
        )
    allowed = "" if budget is None else f"`models.memory` allows {size(budget)} of each memory. "
    raise DoesNotFit(
        f"{plan.model} does not fit this machine.",
        cause=". ".join(_why(plan)) + ".",
        hint=allowed + f"`appliance plan {plan.model}` shows the figures; "
        "try a smaller --ctx, fewer slots (--parallel 1) or a smaller quant.",
    )


def _why(plan: Plan) -> list[str]:
    """What is missing, and the smallest change; sentences without their full stops."""
    texts = [reason.text for reason in plan.reasons if reason.code in ("does_not_fit", "would_fit", "short")]
    found = [text.rstrip(".") for text in texts or [reason.text for reason in plan.reasons[-3:]]]
    return [text[:1].upper() + text[1:] for text in found]


def _measured_before(lessons: Lessons | None, subject: Subject, build: Build, plan: Plan) -> Plan | None:
    """The plan in the engine's figures, when it was asked about it before."""
    rows = None if lessons is None else lessons.measured(subject.key, build.build, plan.flags)
    return None if rows is None else apply_measurement(plan, rows)


def _lessons_of(lessons: Lessons | None, subject: Subject, build: Build) -> Mapping[str, Learned]:
    return {} if lessons is None else lessons.of(subject.sha256, build.build)
