"""One load: a look at the machine, a plan, an engine; and where memory runs out, a smaller plan, said aloud.

A plan is given up for a smaller one at most `MAX_STEPS` times. Only what was left to the planner gets
smaller; when nothing of that is left, the failure is told with the smallest change that a person could make.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from appliance.catalog import ModelRef
from appliance.daemon.launching import make_launch
from appliance.daemon.load_clock import HeadStart, LoadClock, LoadTimes
from appliance.daemon.room import Room, least
from appliance.engines import Build, Launch
from appliance.engines.failures import UNKNOWN_PLACE
from appliance.errors import EngineFailed, OutOfMemory
from appliance.operations.lessons.learning import Lessons
from appliance.operations.lessons.load_times import Estimate
from appliance.operations.machine.survey import Survey, survey
from appliance.operations.models import Library
from appliance.operations.plans.plan import Wishes, plan_subject, request_for, require_fit
from appliance.operations.special.loading import NOTHING, for_load
from appliance.planning import Plan, Reason
from appliance.planning.stepdown import MAX_STEPS, given_up, is_less, limits_after, step_line, tried_line
from appliance.store import Stored

log = logging.getLogger("appliance.serving")
_LOADING, _SERVING = "while loading", "while serving"
_REMEMBERED = ("ran_out_before", "ran_out_here")

Start = Callable[[Build, Launch], Awaitable[None]]
"""Starts an engine and waits until it is ready. Raises EngineFailed; nothing of that engine runs then."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How far a load has been stepped down."""

    first: Plan
    """The plan made first, which answers are held against."""
    taken: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)
    """Bytes that the next plan may take, by place."""
    lines: tuple[Reason, ...] = ()
    """What ran out where, and what there is instead, step by step, those of earlier loads first."""
    tried: tuple[str, ...] = ()
    """The plans that ran out of memory, in a few words each."""


def begun_anew(steps: Steps) -> Steps:
    """After a plan that served for long: what was given up stays told, and counts no more."""
    return Steps(steps.first, lines=steps.lines)


@dataclass(frozen=True, slots=True)
class Next:
    """What would be started next."""

    looked: Survey
    plan: Plan
    steps: Steps


@dataclass(frozen=True, slots=True)
class Crash:
    """A plan that ran out of memory while it served."""

    plan: Plan
    steps: Steps
    failure: EngineFailed
    build: Build
    """The engine that it was."""


class Load:
    """One load, from the look at the machine to an engine that answers."""

    def __init__(
        self,
        library: Library,
        lessons: Lessons,
        ref: ModelRef,
        wishes: Wishes,
        *,
        start: Start,
        show: Callable[[Survey, Plan | None], None],
        room: Callable[[], Room] = Room,
        looked: Survey | None = None,
        timed: Callable[[Estimate | None, LoadTimes | None], None] = lambda _, __: None,
    ) -> None:
        """`show` is told each look and each plan. `room`: what other engines leave now. `looked`: the first
        look, made a moment ago. `timed` is told how long it will take, before anything slow
        begins, and what it took.
        """
        self._library, self._lessons = library, lessons
        self._ref, self._wishes = ref, wishes
        self._start, self._show, self._room, self._looked = start, show, room, looked
        self._sha256 = ref.variant.main.sha256
        self._special = NOTHING
        self._timed, self._clock = timed, LoadClock()

    async def run(self, crash: Crash | None = None) -> Steps:
        """Load it; after a `crash` with less than that plan took. Returns the steps it took.

        Raises what stands in the way: ModelMissing, NotVerified, DoesNotFit, GgufError, EngineError.
        """
        with self._clock.phase("prove"):
            stored = await self._library.require(self._ref)
        head = await HeadStart.begin(self._library.paths, stored)
        self._timed(head.estimate, None)
        try:
            now = await self._run(stored, head, crash)
        finally:
            head.stop()
        times = await head.note(self._library.paths, self._clock, now.looked.build().build, now.plan)
        self._timed(head.estimate, times)
        return now.steps

    async def _run(self, stored: Stored, head: HeadStart, crash: Crash | None) -> Next:
        """What serves in the end."""
        if crash is None:
            looked, plan = await self._plan(stored, {})
            remembered = tuple(reason for reason in plan.reasons if reason.code == "ran_out_before")
            now = Next(looked, plan, Steps(plan, taken=len(remembered), lines=remembered))
            require_fit(plan, self._room().budget)
        else:
            await self._remember(crash.build, crash.plan, crash.failure)
            now = await self._smaller(stored, crash.plan, crash.steps, crash.failure, _SERVING)
        ran_out_at: str | None = None
        while True:
            failure = await self._attempt(stored, head, now, ran_out_at)
            if failure is None:
                return now
            ran_out_at = failure.out_of_memory
            now = await self._smaller(stored, now.plan, now.steps, failure, _LOADING)

    async def _plan(self, stored: Stored, limits: Mapping[str, int]) -> tuple[Survey, Plan]:
        """What to start with what is free now."""
        library, room = self._library, self._room()
        looked, self._looked = self._looked, None
        if looked is None:
            with self._clock.phase("look"):
                looked = await survey(
                    library.settings, self._wishes.engine, wake=True, paths=library.paths,
                    staying=room.staying,
                )  # fmt: skip
        self._show(looked, None)
        with self._clock.phase("plan"):
            return looked, await self._plan_on(looked, room, stored, limits)

    async def _plan_on(self, looked: Survey, room: Room, stored: Stored, limits: Mapping[str, int]) -> Plan:
        library = self._library
        subject, self._special = await for_load(library, self._ref, stored, self._wishes.draft)
        request = request_for(library.settings, self._wishes, subject.mode)
        return await plan_subject(
            subject,
            looked=looked,
            request=replace(request, limits=least(room.limits_on(looked), limits)),
            paths=library.paths,
            lessons=self._lessons,
        )

    async def _attempt(
        self, stored: Stored, head: HeadStart, now: Next, ran_out_at: str | None
    ) -> EngineFailed | None:
        """Start it. The failure, when that was for lack of memory; every other one is raised.

        `ran_out_at`: the plan before ran out there. A crash right after that is most likely the same: drivers
        and libraries near the end of memory often die without a word.
        """
        self._show(now.looked, now.plan)
        build = now.looked.build()
        launch = make_launch(self._ref, stored, now.plan, self._special, tight=bool(now.steps.lines))
        launch = replace(launch, load_mode=head.mode(now.plan).mode)
        self._clock.attempts += 1
        try:
            with self._clock.phase("engine"):
                await self._start(build, launch)
        except EngineFailed as failure:
            if failure.out_of_memory in (None, UNKNOWN_PLACE):
                failure.out_of_memory = ran_out_at or failure.out_of_memory
            if failure.out_of_memory is None:
                raise
            await self._remember(build, now.plan, failure)
            return failure
        return None

    async def _remember(self, build: Build, plan: Plan, failure: EngineFailed) -> None:
        """So that the next load does not try this plan again."""
        where = failure.out_of_memory or UNKNOWN_PLACE
        await asyncio.to_thread(
            self._lessons.note_ran_out, self._sha256, build.build, plan, where, path=build.path
        )

    async def _smaller(
        self, stored: Stored, failed: Plan, steps: Steps, failure: EngineFailed, when: str
    ) -> Next:
        """What takes less than `failed`. Raises OutOfMemory when there is nothing."""
        steps = replace(steps, tried=(*steps.tried, tried_line(failed)))
        if steps.taken >= MAX_STEPS:
            raise _told(failure, steps, failure.hint)
        less = await self._less(stored, failed, failure.out_of_memory, steps, f"ran out {when}")
        if not is_less(less.plan, failed):
            advice = [reason.text for reason in less.plan.reasons if reason.code == "would_fit"]
            hint = f"Nothing that was left open can get smaller; {advice[0]}." if advice else failure.hint
            raise _told(failure, steps, hint)
        return less

    async def _less(self, stored: Stored, failed: Plan, where: str | None, steps: Steps, what: str) -> Next:
        """The next plan; it may not fit, or be no smaller."""
        limits = limits_after(failed, where, steps.taken + 1, steps.limits)
        looked, plan = await self._plan(stored, limits)
        line = step_line(failed, where, plan, what)
        if is_less(plan, failed):
            log.warning("%s: %s", self._ref.ref, line.text)
        steps = replace(steps, taken=steps.taken + 1, limits=limits, lines=(*steps.lines, line))
        codes = dict.fromkeys((*steps.first.given_up, *given_up(steps.first, plan)))
        reasons = [reason for reason in plan.reasons if reason.code not in _REMEMBERED]
        plan = replace(plan, given_up=tuple(codes), reasons=(*reasons, *steps.lines))
        return Next(looked, plan, steps)


def _told(failure: EngineFailed, steps: Steps, hint: str | None) -> OutOfMemory:
    """The last failure, with all that was tried."""
    more = len(steps.tried) - 1
    also = "" if not more else f", also with {more} smaller plan{'s' if more > 1 else ''}"
    tried = "".join(f"\nTried: {one}." for one in steps.tried) if more else ""
    return OutOfMemory(
        f"The engine ran out of memory{also}.",
        cause=f"{failure.cause or failure.message}{tried}",
        hint=hint,
        lines=failure.lines,
        out_of_memory=failure.out_of_memory,
    )
