"""The one task that loads and unloads models: it takes one step, then waits for a change or a time.

A step, in this order:

1. Unload what nobody has used for `keep_alive`.
2. Choose who is loaded next: a person's command, then the request that waits longest, then a preload, then
   what went to a remote since it was not loaded.
3. Work out who must make way. A request waits for their turn to be over; a preload, or what a remote has
   answered meanwhile, makes nobody leave.
4. Who makes way takes no new request, ends those that run, and is stopped; its memory is waited for.
5. Load. When nobody waits for it any more, the load is given up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from appliance.daemon.hooks import NobodyWaits
from appliance.daemon.pool.fitting import Fit, Occupant, fit_for
from appliance.daemon.pool.returning import memory_returned
from appliance.daemon.pool.seat import Seat
from appliance.daemon.pool.wants import Asked, Barred, Want
from appliance.daemon.room import Room, together
from appliance.engines.pool import Standing, Turn, may_leave_at, next_wanted, unload_at, victims
from appliance.errors import ApplianceError, DoesNotFit
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey, survey
from appliance.operations.models import Library
from appliance.planning import Plan

log = logging.getLogger("appliance.serving")

FIT_HOLDS_S = 20.0
"""While the same models are resident, the answer to who must leave is not worked out again for so long."""
BROKEN_S = 5.0
LOADS_ELSEWHERE_S = 1.0
PERSON_WAITS_S = 30.0
"""A person's command waits so long for requests of models that make way; then they are cut short."""
MISSED_AGAIN_S = 60.0

Note = Callable[[str, str, str], None]
"""(kind, ref, text) for the journal's events."""


@dataclass(frozen=True, slots=True)
class _KnownFit:
    fit: Fit
    beside: frozenset[str]
    until: float


class Mover:
    """Loads and unloads the models of `seats`. `wake` whenever something changed."""

    def __init__(
        self,
        seats: Mapping[str, Seat],
        library: Callable[[], Library],
        lessons: Lessons,
        *,
        keep_s: Callable[[Seat], float | None],
        note: Note,
        turn: Turn,
    ) -> None:
        self._seats, self._library, self._lessons = seats, library, lessons
        self._keep_s, self._note, self._turn = keep_s, note, turn
        self._fits: dict[str, _KnownFit] = {}
        self._draining: set[Seat] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.asked = Asked()
        self.budget_changed = False
        """`models.memory` is another one: what is loaded may be too much."""
        self.halted = False
        """A person stopped the engines: requests load nothing until a person does."""
        self.barred = Barred()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="pool")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.asked.clear()

    def wake(self) -> None:
        """Something changed: look again."""
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                at = await self._step(time.monotonic())
            except Exception:
                log.exception("a step of the pool failed")  # the others must go on
                at = time.monotonic() + BROKEN_S
            wait = None if at is None else max(0.0, at - time.monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _step(self, now: float) -> float | None:
        """One step; when to look again by itself, None: only after a change."""
        standings = [seat.standing(self._keep_s(seat)) for seat in self._seats.values()]
        for model in standings:
            at = unload_at(model)
            if at is not None and at <= now:
                await self._unload(self._seats[model.ref], "unused", "nobody has used it for a while")
                return now
        beyond = self._beyond_budget(standings) if self.budget_changed else None
        if beyond is not None:
            await self._unload(beyond, "evicted", "models.memory was lowered")
            return now
        want = self._next(standings, now)
        self._release(except_for=want)
        if want is None:
            return self._next_look(standings, now)
        at = await self._bring(want, now)
        times = [at, *(unload_at(model) for model in standings)]
        return min((time_ for time_ in times if time_ is not None), default=None)

    def _next(self, standings: Iterable[Standing], now: float) -> Want | None:
        asked = self.asked.first(self.barred)
        if asked is not None or self.halted:
            return asked
        wanted = None if self.barred.requests else next_wanted(standings, now)
        seat = self._seats[wanted.ref] if wanted is not None else self._missed(now)
        return None if seat is None else Want(seat, "request" if wanted else "missed", seat.wishes)

    def _missed(self, now: float) -> Seat | None:
        found = (s for s in self._seats.values() if s.missed and s.state == "cold" and s.retry_at <= now)
        return None if self.barred.ahead else next(found, None)

    def _beyond_budget(self, standings: Iterable[Standing]) -> Seat | None:
        """Who goes since the budget was lowered: of those without a request the least recently used."""
        budget, found = self._budget(), [_occupant(seat) for seat in self._seats.values()]
        taken = together([one.plan for one in found if one is not None])
        if budget is None or all(n_bytes <= budget for n_bytes in taken.values()):
            self.budget_changed = False
            return None
        idle = [model for model in victims(standings, "") if not model.has_requests]
        return self._seats[idle[0].ref] if idle else None

    @staticmethod
    def _next_look(standings: Iterable[Standing], now: float) -> float | None:
        times = [unload_at(model) for model in standings]
        times += [model.retry_at for model in standings if model.waiting and model.retry_at > now]
        return min((at for at in times if at is not None), default=None)

    async def _bring(self, want: Want, now: float) -> float | None:
        """One step towards having it loaded; when to look again, if that is not yet possible."""
        try:
            fit = await self._fit(want, now)
            if fit is not None and fit.leaving:
                if not want.evicts:
                    self._end(want, None)
                    want.seat.missed, want.seat.retry_at = False, now + MISSED_AGAIN_S
                    return now
                at = await self._make_way(want, fit, now)
                if at is not None or want.dropped:
                    return at
                if any(self._seats[ref].state != "cold" for ref in fit.leaving):
                    return None  # they still work on their last requests
            looked = None if fit is None else await self._room_made(want, fit)
            await self._load(want, looked)
        except ApplianceError as error:
            if isinstance(error, DoesNotFit) and self._others_load(want):
                return time.monotonic() + LOADS_ELSEWHERE_S
            if not isinstance(error, NobodyWaits):
                want.seat.serving.refuse(want.seat.ref, error)
            self._end(want, error)
        else:
            self._end(want, None)
        return time.monotonic()

    def _others_load(self, want: Want) -> bool:
        """An engine that is on its way can't make room yet, and may soon."""
        return any(seat.state == "loading" for seat in self._seats.values() if seat is not want.seat)

    async def _fit(self, want: Want, now: float) -> Fit | None:
        """Who must make way; None while no other engine is resident. Raises as `fit_for`."""
        others = [seat for seat in self._seats.values() if seat is not want.seat and seat.state != "cold"]
        occupants = {seat.ref.ref: one for seat in others if (one := _occupant(seat)) is not None}
        if not occupants:
            return None
        known, beside = self._fits.get(want.seat.ref.ref), frozenset(occupants)
        if known is not None and known.beside == beside and now < known.until:
            return known.fit
        standings = [seat.standing(None) for seat in others]
        able = [occupants[one.ref] for one in victims(standings, want.seat.ref.ref) if one.ref in occupants]
        fixed = [one for one in occupants.values() if one not in able]
        fit = await fit_for(
            self._library(), self._lessons, want.seat.ref, want.wishes,
            able=able, fixed=fixed, budget=self._budget(),
        )  # fmt: skip
        self._fits[want.seat.ref.ref] = _KnownFit(fit, beside, now + FIT_HOLDS_S)
        return fit

    async def _make_way(self, want: Want, fit: Fit, now: float) -> float | None:
        """Ask those to leave whose turn is over; when the last turn is over, if one is not."""
        leaving = [self._seats[ref] for ref in fit.leaving]
        if want.by == "request":
            at = max(may_leave_at(seat.standing(None), self._turn) for seat in leaving)
            if at > now:
                return at
        for seat in leaving:
            seat.queue.hold(True)
            self._draining.add(seat)
        want.waits_since = want.waits_since or now
        cut = want.by == "person" and now - want.waits_since >= PERSON_WAITS_S
        for seat in leaving:
            if cut or seat.queue.snapshot.running == 0:
                await self._unload(seat, "evicted", f"to make room for {want.seat.ref.ref}")
                self._draining.discard(seat)
                seat.queue.hold(False)
        if want.by == "person" and any(seat.state == "ready" for seat in leaving):
            return want.waits_since + PERSON_WAITS_S
        return None

    async def _room_made(self, want: Want, fit: Fit) -> Survey:
        """The machine once the memory of those that left is free."""
        if not fit.leaving:
            return fit.looked
        library, room = self._library(), self.room_beside(want.seat)

        async def look() -> Survey:
            return await survey(
                library.settings, want.wishes.engine, wake=True, paths=library.paths, staying=room.staying
            )

        freed = together([plan for ref in fit.leaving if (plan := self._seats[ref].serving.snapshot.plan)])
        self._fits.clear()
        return await memory_returned(fit.looked, freed, look)

    async def _load(self, want: Want, looked: Survey | None) -> None:
        """Load it, and give it up when nobody waits any more. Raises what loading ended with."""
        seat = want.seat
        again = want.by == "person"
        load = seat.serving.load(seat.ref, want.wishes, looked=looked, again=again)
        work = asyncio.ensure_future(load)
        try:
            while not work.done():
                woken = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({work, woken}, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                self._changed.clear()
                if not work.done() and want.dropped:
                    seat.serving.abandon(
                        NobodyWaits(f"{seat.ref.ref} is not loaded: nobody waits for it any more.")
                    )
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _unload(self, seat: Seat, kind: str, why: str) -> None:
        self._fits.clear()
        log.info("%s is unloaded: %s", seat.ref.ref, why)
        self._note(kind, seat.ref.ref, why)
        await seat.serving.unload()

    def _release(self, except_for: Want | None) -> None:
        """Who was to make way for a model that nobody wants any more goes on."""
        if except_for is not None and except_for.evicts and not except_for.dropped:
            return
        for seat in self._draining:
            seat.queue.hold(False)
        self._draining.clear()

    def _end(self, want: Want, error: ApplianceError | None) -> None:
        self._release(except_for=None)
        self.asked.drop(want)
        want.end(error)

    def _budget(self) -> int | None:
        memory = self._library().settings.models.memory
        return None if memory == "auto" else memory

    def room_beside(self, seat: Seat) -> Room:
        """What the other engines leave to this one."""
        others = [_occupant(other) for other in self._seats.values() if other is not seat]
        stay = [one for one in others if one is not None]
        plans: list[Plan] = [one.plan for one in stay]
        return Room(frozenset(one.pid for one in stay), self._budget(), together(plans))


def _occupant(seat: Seat) -> Occupant | None:
    """The seat as one that holds memory; None when no process of it runs."""
    snapshot = seat.serving.snapshot
    if snapshot.engine is None or snapshot.engine.pid is None or snapshot.plan is None:
        return None
    return Occupant(seat.ref.ref, snapshot.engine.pid, snapshot.plan)
