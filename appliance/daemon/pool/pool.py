"""The pool of resident models: who has a seat, what requests find there, and what a person can command."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial

from appliance.catalog import ModelRef
from appliance.daemon.here import Here
from appliance.daemon.hooks import Hooks, NobodyWaits
from appliance.daemon.machine.gpus import Gpus
from appliance.daemon.machine.guard import Guard
from appliance.daemon.places import places_of
from appliance.daemon.pool.mover import Mover, Note
from appliance.daemon.pool.seat import Seat
from appliance.daemon.pool.sparing import Sparing
from appliance.daemon.room import Room
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.serving import Serving
from appliance.daemon.watching import PlanWatch
from appliance.engines import LogBook
from appliance.engines.pool import Turn, unload_at
from appliance.errors import ApplianceError, ModelMissing
from appliance.gateway.admission import Admission
from appliance.monitor import Monitor, heat_factor
from appliance.operations.lessons.learning import Lessons
from appliance.operations.models import Library
from appliance.operations.plans.plan import Wishes
from appliance.operations.start_estimate import estimate_for

log = logging.getLogger("appliance.serving")
Watch = Callable[[Serving, Callable[[], bool]], PlanWatch]
ESTIMATE_HOLDS_S = 20.0
MOST_SEATS = 64
"""Models that are remembered; the longest unused cold one is forgotten first."""


class Pool:
    """Owns every resident engine through one `Serving` each."""

    def __init__(
        self,
        library: Library,
        *,
        monitor: Monitor,
        lessons: Lessons,
        here: Here,
        on_change: Callable[[Seat, ServingSnapshot, ServingSnapshot], None] = lambda _seat, _was, _now: None,
        watch: Watch | None = None,
        hooks: Hooks | None = None,
        book: LogBook | None = None,
        note: Note = lambda _kind, _ref, _text: None,
        turn: Turn | None = None,
        gpus: Gpus | None = None,
    ) -> None:
        """`on_change` is told each change of a model, before and after. `watch` makes who looks at an engine
        from time to time, from its owner and whether it has no request. `gpus`: those that were lost.
        """
        self._gpus = gpus or Gpus()
        self._library, self._monitor, self._lessons, self._here = library, monitor, lessons, here
        self._on_change, self._watch, self._hooks = on_change, watch, hooks
        self.book = book or LogBook()
        self._seats: dict[str, Seat] = {}
        self._default: str | None = None
        self._closing: set[asyncio.Future[None]] = set()
        self._mover = Mover(
            self._seats, lambda: self._library, lessons, keep_s=self._keep_s, note=note, turn=turn or Turn()
        )
        self.sparing = Sparing(self._seats, self._mover)

    def __iter__(self) -> Iterator[Seat]:
        return iter(tuple(self._seats.values()))

    @property
    def default(self) -> Seat | None:
        """The model of requests that name none: the one that a person loaded last, else the last loaded."""
        return self._seats.get(self._default) if self._default is not None else None

    @property
    def halted(self) -> bool:
        """A person stopped the engines: requests load nothing until a person loads something."""
        return self._mover.halted

    def find(self, ref: str) -> Seat | None:
        """The seat of `id:QUANT`."""
        return self._seats.get(ref)

    def seat(self, ref: ModelRef) -> Seat:
        """The seat of this model; a new one when it has none."""
        found = self._seats.get(ref.ref)
        return found if found is not None else self._new(ref)

    def use(self, library: Library) -> None:
        """Take over changed settings: what they say of loads acts at the next one."""
        old, new = self._library.settings.models.memory, library.settings.models.memory
        self._mover.budget_changed = self._mover.budget_changed or old != new
        self._library = library
        pinned = self._pinned()
        for seat in self:
            seat.serving.use(library)
            seat.queue.resize(seat.queue.snapshot.slots, library.settings.routing.max_queue)
            seat.pinned = seat.ref.ref in pinned
            seat.settings_changed()
        self._mover.wake()

    def start(self) -> None:
        self._mover.start()

    async def stop(self) -> None:
        """Stop the mover, then all engines side by side."""
        await self._mover.stop()
        await asyncio.gather(*self._closing, *map(_close, self))

    async def load(self, ref: ModelRef, wishes: Wishes | None = None) -> None:
        """A person wants it loaded, and it becomes the default. Raises what loading ended with."""
        seat = self.seat(ref)
        if wishes is not None and wishes != Wishes():
            seat.wishes = wishes  # without any, what was asked for before still holds
        self._default = ref.ref
        await self._asked(seat)  # also when it is loaded: it is planned again
        self._library.remember(ref.ref)

    def preload(self, ref: ModelRef) -> asyncio.Future[None]:
        """Load it when it fits beside the others."""
        done = self._mover.asked.put(self.seat(ref), "preload", Wishes())
        self._mover.wake()
        return done

    async def unload(self, seat: Seat, why: ApplianceError | None = None) -> None:
        """Free its memory. A request loads it again, unless `why` says why it must not."""
        seat.serving.abandon(NobodyWaits(f"{seat.ref.ref} was unloaded while it was being loaded."))
        await seat.serving.unload(why)

    async def halt(self) -> None:
        """A person stops all engines, and requests load none until a person does."""
        self._mover.halted = True
        for seat in self:
            await self.unload(seat)
            seat.look_again()  # a request that waits for a load that never comes is told so

    async def restart(self, seat: Seat | None = None) -> None:
        """Load it, or the default, again with what is free now."""
        seat = seat or self.default
        if seat is None:
            raise ModelMissing("No model was loaded, so none can be restarted.", hint="appliance up MODEL")
        await self._asked(seat)

    async def give_up(self, ref: str, error: ApplianceError) -> None:
        """Stop every engine with its files: the model can't be trusted any more. Their state is `failed` with
        this error.
        """
        for name in (ref, *self.helped_by(ref)):
            seat = self._seats.get(name)
            if seat is not None and (name != ref or seat.serving.uses(ref)):
                await seat.serving.give_up(error)

    def uses(self, ref: str) -> bool:
        """An engine runs with this model's files, or ended because they are not right."""
        seat = self._seats.get(ref)
        return (seat is not None and seat.serving.uses(ref)) or bool(self.helped_by(ref))

    def helped_by(self, ref: str) -> tuple[str, ...]:
        """The models whose engines run with this one as their draft model."""
        engines = [seat.serving.engine for seat in self]
        return tuple(
            engine.launch.model_id
            for engine in engines
            if engine is not None and engine.launch.draft_ref == ref and engine.snapshot.pid is not None
        )

    def lacks(self, ref: str) -> bool:
        """This model would be served, but its files were damaged, or removed."""
        seat = self._seats.get(ref)
        return seat is not None and seat.serving.lacks(ref)

    async def load_again(self, ref: str) -> None:
        """Its files are right again. Raises what loading ended with."""
        seat = self._seats.get(ref)
        if seat is not None:
            await self._asked(seat)

    def estimate(self, seat: Seat) -> None:
        """Have it found out how long its load would take, for the next who asks."""
        now = time.monotonic()
        if seat.state != "cold" or now - seat.estimated_at < ESTIMATE_HOLDS_S:
            return
        seat.estimated_at = now
        work = asyncio.ensure_future(_estimate(self._library, seat))
        self._closing.add(work)
        work.add_done_callback(self._closing.discard)

    def missed(self, ref: ModelRef) -> None:
        """A remote answered since it was not loaded: load it for the next request, if that displaces none."""
        self.seat(ref).missed = not self._mover.barred.ahead
        self._mover.wake()

    async def _asked(self, seat: Seat) -> None:
        self._mover.halted = False
        self._gpus.pardon()
        done = self._mover.asked.put(seat, "person", seat.wishes)
        self._mover.wake()
        await done

    def _speed_factor(self, name: str) -> float:
        """Speed now over usual speed of a model."""
        heat, seat = self._monitor.snapshot, self._seats.get(name)
        return heat_factor(heat, places_of(seat.serving.snapshot, heat.gpus) if seat is not None else ())

    def _new(self, ref: ModelRef) -> Seat:
        self._forget_one()
        queue = Admission(
            1, self._library.settings.routing.max_queue,
            learn_scale=partial(self._speed_factor, ref.ref), on_change=self._mover.wake,
        )  # fmt: skip
        queue.ease(self.sparing.easing)
        changed = partial(self._changed, ref.ref)
        serving = Serving(
            self._library, changed, self._lessons,
            room=partial(self._room, ref.ref), hooks=self._hooks, ring=self.book.ring(ref.ref),
            guard=Guard(self._gpus),
        )  # fmt: skip
        seat = self._seats[ref.ref] = Seat(ref, serving, queue, self._mover.wake)
        seat.pinned = ref.ref in self._pinned()
        serving.start()
        if self._watch is not None:
            seat.watch = self._watch(serving, lambda: seat.wanted == 0)
            seat.watch.start()
        return seat

    def _forget_one(self) -> None:
        cold = [
            seat for seat in self if seat.state == "cold" and not seat.wanted and seat is not self.default
        ]
        if len(self._seats) < MOST_SEATS or not cold:
            return
        oldest = min(cold, key=lambda seat: seat.last_used)
        del self._seats[oldest.ref.ref]
        end = asyncio.ensure_future(_close(oldest))
        self._closing.add(end)
        end.add_done_callback(self._closing.discard)

    def _room(self, ref: str) -> Room:
        seat = self._seats.get(ref)
        return Room() if seat is None else self._mover.room_beside(seat)

    def _changed(self, ref: str, snapshot: ServingSnapshot) -> None:
        seat = self._seats.get(ref)
        if seat is None:
            return
        if snapshot.state == "ready" and self._default is None:
            self._default = ref
        before, seat.last = seat.last, snapshot
        seat.follow(snapshot)
        if seat.watch is not None:
            seat.watch.changed()
        self._on_change(seat, before, snapshot)

    def _keep_s(self, seat: Seat) -> float | None:
        keep = self._library.settings.models.keep_alive
        return None if keep == "forever" else keep

    def _pinned(self) -> frozenset[str]:
        """Refs of `models.pinned`; a name that the catalog does not know pins nothing."""
        found = set()
        for name in self._library.settings.models.pinned:
            try:
                found.add(self._here.resolve(name).ref)
            except ApplianceError as error:
                log.warning("models.pinned: %s", error.message)
        return frozenset(found)

    def unload_time(self, seat: Seat) -> float | None:
        """Unix time at which it is unloaded if no request comes; None: it is not."""
        at = unload_at(seat.standing(self._keep_s(seat)))
        return None if at is None else time.time() + at - time.monotonic()


async def _estimate(library: Library, seat: Seat) -> None:
    found = await estimate_for(library, seat.ref)
    seat.estimate_s = None if found is None else found.seconds


async def _close(seat: Seat) -> None:
    """Stop everything that belongs to a seat."""
    try:
        if seat.watch is not None:
            await seat.watch.stop()
        await seat.serving.stop()
    except Exception:
        log.exception("%s did not stop cleanly", seat.ref.ref)  # the other seats must be closed, too
