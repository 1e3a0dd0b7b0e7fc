"""Which resident models must leave so that another one is served well. Plans by formula, on one look at the
machine; the load itself plans again, with what is really free then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.catalog import ModelRef
from appliance.daemon.room import Room, together
from appliance.daemon.sketching import sketch, subject_for
from appliance.engines.pool import good_beside
from appliance.errors import DoesNotFit
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine import memory
from appliance.operations.machine.memory import Own
from appliance.operations.machine.survey import Survey, survey
from appliance.operations.models import Library
from appliance.operations.plans.plan import Wishes, require_fit
from appliance.operations.plans.subject import Subject
from appliance.planning import Plan


@dataclass(frozen=True, slots=True)
class Occupant:
    """A resident model."""

    ref: str
    pid: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class Fit:
    """Who leaves, and the look that says so, as the machine is before they do."""

    leaving: tuple[str, ...]
    looked: Survey


async def fit_for(
    library: Library,
    lessons: Lessons,
    ref: ModelRef,
    wishes: Wishes,
    *,
    able: Sequence[Occupant],
    fixed: Sequence[Occupant],
    budget: int | None,
) -> Fit:
    """The fewest of `able`, from the front, that make room for this model; `fixed` stay in any case.

    Raises DoesNotFit when it does not fit even with all of them gone, ModelMissing, NotVerified, GgufError,
    EngineError.
    """
    subject = await subject_for(library, ref, wishes)
    everyone = frozenset(one.pid for one in (*able, *fixed))
    looked = await survey(library.settings, wishes.engine, wake=True, paths=library.paths, staying=everyone)
    held = await asyncio.to_thread(_held, (*able, *fixed))
    question = _Question(library, lessons, subject, wishes, looked, tuple(able), tuple(fixed), budget, held)
    alone = await question.plan(able)
    try:
        require_fit(alone, budget)
    except DoesNotFit as error:
        raise _beside_pinned(error, fixed) from None
    leaving = await _prefix(question, able, alone)
    leaving = await _without_the_needless(question, leaving, alone)
    return Fit(tuple(one.ref for one in leaving), replace(looked, own=question.own(())))


@dataclass(frozen=True, slots=True)
class _Question:
    library: Library
    lessons: Lessons
    subject: Subject
    wishes: Wishes
    looked: Survey
    able: tuple[Occupant, ...]
    fixed: tuple[Occupant, ...]
    budget: int | None
    held: Mapping[int, tuple[frozenset[int], int, int]]

    async def plan(self, leaving: Sequence[Occupant]) -> Plan:
        """The plan if these were gone."""
        stay = [one for one in (*self.able, *self.fixed) if one not in leaving]
        room = Room(budget=self.budget, taken=together([one.plan for one in stay]))
        looked = replace(self.looked, own=self.own(leaving))
        return await sketch(
            self.library, self.lessons, self.subject, self.wishes, looked, room.limits_on(looked)
        )

    def own(self, leaving: Sequence[Occupant]) -> Own:
        """What goes with them, and what the others have mapped."""
        go = [self.held[one.pid] for one in leaving]
        stay = [self.held[one.pid] for one in (*self.able, *self.fixed) if one not in leaving]
        return Own(
            frozenset().union(*(pids for pids, _, _ in go)),
            sum(private for _, private, _ in go),
            together([one.plan for one in leaving]),
            sum(mapped for _, _, mapped in stay),
        )


def _held(occupants: Sequence[Occupant]) -> dict[int, tuple[frozenset[int], int, int]]:
    """Of each: its processes, the bytes that are theirs alone, and those of files that they have mapped."""
    found = {}
    for one in occupants:
        pids = memory.children_of(one.pid) | {one.pid}
        found[one.pid] = (
            pids,
            sum(memory.private_ram(pid) for pid in pids),
            sum(memory.mapped_ram(pid) for pid in pids),
        )
    return found


async def _prefix(question: _Question, able: Sequence[Occupant], alone: Plan) -> tuple[Occupant, ...]:
    for count in range(len(able)):
        if good_beside(await question.plan(able[:count]), alone):
            return tuple(able[:count])
    return tuple(able)


async def _without_the_needless(
    question: _Question, leaving: tuple[Occupant, ...], alone: Plan
) -> tuple[Occupant, ...]:
    """One that was taken first may free too little to matter beside those taken after it."""
    for one in leaving[:-1]:
        fewer = tuple(other for other in leaving if other is not one)
        if good_beside(await question.plan(fewer), alone):
            leaving = fewer
    return leaving


def _beside_pinned(error: DoesNotFit, fixed: Sequence[Occupant]) -> DoesNotFit:
    if not fixed:
        return error
    names = ", ".join(one.ref for one in fixed)
    return DoesNotFit(
        f"{error.message.rstrip('.')} beside what stays loaded ({names}).",
        cause=error.cause,
        hint=f"Unpin or unload one of them, or: {error.hint}"
        if error.hint
        else "Unpin or unload one of them.",
    )
