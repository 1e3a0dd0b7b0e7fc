"""The bounded queue in front of one engine: at most `slots` requests inside, interactive before batch.

Neither engine limits its own queue, and a request that waits inside an engine gets neither headers nor pings.
So requests wait here. Everything happens in one event loop and without awaiting between a decision and its
effect, so a place is always exactly one of: waiting, held, gone.

    with admission.enter("interactive") as place:
        while not await place.wait(8.0):
            ...                                  # waited too long: stay or leave
        ...                                      # a slot is held here
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Self

from appliance.errors import Rejected
from appliance.routing import Lane

LANES: tuple[Lane, ...] = ("interactive", "batch")
"""In the order in which they are served."""
_WEIGHT = 0.3
"""Of the newest service time in the moving average."""
_OUTLIVED = 0.5
_SLOWEST = 0.01
"""The router's own lower limit of the factor."""


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The queue at one moment."""

    waiting: int
    running: int
    lanes: Mapping[str, int]
    """Waiting requests by lane."""
    predicted_wait: float | None
    """Seconds at usual speed until a new interactive request would get a slot; None when unknown."""
    slots: int
    max_queue: int


@dataclass(slots=True, eq=False)
class Place:
    """One request's place; leaving the `with` block frees it, whatever happened."""

    lane: Lane
    entered: float
    _queue: Admission = field(repr=False)
    granted_at: float | None = None
    streams: int = 1
    """The most places that held a slot at once while this one did, itself included."""
    completed: bool = False
    """Set it when the reply was complete: only then its time counts for the prediction."""
    _granted: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def held(self) -> bool:
        """Whether it holds a slot."""
        return self.granted_at is not None

    @property
    def waited_s(self) -> float:
        """Seconds in the queue, until now or until the slot came."""
        return (self.granted_at if self.granted_at is not None else self._queue.clock()) - self.entered

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for the slot; False when `timeout_s` passed first. The place stays in the queue then."""
        if self.held:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._granted.wait()
        except TimeoutError:
            return self.held
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue._leave(self)

    def _grant(self, now: float) -> None:
        self.granted_at = now
        self._granted.set()


class Admission:
    """The queue of one engine. `slots` follows the engine (`resize`).

    `learn_scale` says how fast the machine is now against its usual speed, in (0, 1]. Times are learned, and
    predictions made, in seconds at usual speed, since the router divides them by the same factor.
    """

    def __init__(
        self,
        slots: int,
        max_queue: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        learn_scale: Callable[[], float] = lambda: 1.0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when a place was taken, got its slot, or was left."""
        if slots < 1:
            raise ValueError("an engine has at least one slot")
        self.clock = clock
        self.learn_scale = learn_scale
        self._slots = slots
        self._max_queue = max_queue
        self._running: set[Place] = set()
        self._waiting: Mapping[Lane, deque[Place]] = {lane: deque() for lane in LANES}
        self._service_s: float | None = None
        self._held = False
        self._on_change = on_change

    def hold(self, held: bool) -> None:
        """While held, nobody gets a slot: the engine is about to make way. Running requests go on."""
        if held != self._held:
            self._held = held
            self._fill()

    @property
    def held(self) -> bool:
        """Whether nobody gets a slot now."""
        return self._held

    @property
    def waiting_since(self) -> float | None:
        """By `clock`, since when the oldest request that has no slot waits; None when none waits."""
        return min((places[0].entered for places in self._waiting.values() if places), default=None)

    def enter(self, lane: Lane) -> Place:
        """A place: held at once when a slot is free and nobody waits.

        Raises Rejected (`reject.queue_full`, 429) when the queue is full.
        """
        now = self.clock()
        place = Place(lane, now, self)
        if not self._held and len(self._running) < self._slots and self._count() == 0:
            self._grant(place, now)
            self._on_change()
            return place
        if self._count() >= self._max_queue:
            raise Rejected(
                "The queue is full.",
                reason="reject.queue_full",
                http_status=429,
                cause=f"{self._count()} requests wait and {len(self._running)} run.",
                retry_after_s=self._retry_after(lane),
            )
        self._waiting[lane].append(place)
        self._on_change()
        return place

    def resize(self, slots: int, max_queue: int | None = None) -> None:
        """Follow an engine that was started with another plan. Running requests are never touched."""
        self._slots = max(1, slots)
        self._max_queue = self._max_queue if max_queue is None else max_queue
        self._fill()

    def predicted_wait(self, lane: Lane = "interactive") -> float | None:
        """Seconds at usual speed until a new request of `lane` would get its slot; None when nothing was
        measured yet. Divided by the speed factor of now they are real seconds.

        Remaining time of the slot that finishes soonest, plus one mean service time per `slots` requests
        ahead. The mean is exponentially weighted over complete replies.
        """
        free = self._slots - len(self._running)
        ahead = sum(len(self._waiting[other]) for other in LANES[: LANES.index(lane) + 1])
        if free > ahead:
            return 0.0
        if self._service_s is None:
            return None
        now = self.clock()
        held = [now - place.granted_at for place in self._running if place.granted_at is not None]
        left = [self._left_s(since * self._scale(), self._service_s) for since in held]
        return min(left, default=0.0) + ahead * self._service_s / self._slots

    @staticmethod
    def _left_s(ran_s: float, mean_s: float) -> float:
        """Of one running request. What has outlived the mean is of a longer kind: half of the time that it
        has run is expected to come, so a busy slot is never predicted to be free at once."""
        return mean_s - ran_s if ran_s < mean_s else ran_s * _OUTLIVED

    @property
    def snapshot(self) -> QueueSnapshot:
        """The queue now."""
        lanes = MappingProxyType({str(lane): len(places) for lane, places in self._waiting.items()})
        return QueueSnapshot(
            self._count(), len(self._running), lanes, self.predicted_wait(), self._slots, self._max_queue
        )

    def _count(self) -> int:
        return sum(len(places) for places in self._waiting.values())

    def _retry_after(self, lane: Lane) -> int:
        wait = self.predicted_wait(lane)
        return 10 if wait is None else math.ceil(min(120.0, max(1.0, wait / self._scale())))

    def _scale(self) -> float:
        return min(1.0, max(_SLOWEST, self.learn_scale()))

    def _leave(self, place: Place) -> None:
        if place in self._running:
            self._running.remove(place)
            if place.completed and place.granted_at is not None:
                self._learn((self.clock() - place.granted_at) * self._scale())
            self._fill()
        elif place in self._waiting[place.lane]:
            self._waiting[place.lane].remove(place)
        self._on_change()

    def _learn(self, seconds: float) -> None:
        known = self._service_s
        self._service_s = seconds if known is None else known + _WEIGHT * (seconds - known)

    def _fill(self) -> None:
        now = self.clock()
        for lane in LANES:
            places = self._waiting[lane]
            while places and not self._held and len(self._running) < self._slots:
                self._grant(places.popleft(), now)

    def _grant(self, place: Place, now: float) -> None:
        self._running.add(place)
        for running in self._running:
            running.streams = max(running.streams, len(self._running))
        place._grant(now)
