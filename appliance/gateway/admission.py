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
from types import MappingProxyType

from appliance.errors import Rejected
from appliance.gateway.places import Easing, Place, QueueSnapshot
from appliance.routing import Lane

__all__ = ["Admission", "Easing", "Place", "QueueSnapshot"]

LANES: tuple[Lane, ...] = ("interactive", "batch")
"""In the order in which they are served."""
_WEIGHT = 0.3
"""Of the newest service time in the moving average."""
_OUTLIVED = 0.5
_AGED = 10
"""Pauses after which a batch request has waited for long enough to go before interactive ones."""
_SLOWEST = 0.01
"""The router's own lower limit of the factor."""


def _call_later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, call)


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
        later: Callable[[float, Callable[[], None]], asyncio.TimerHandle] = _call_later,
    ) -> None:
        """`on_change` is called when a place was taken, got its slot, or was left. `later` sets a timer."""
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
        self._later = later
        self._easing: Easing | None = None
        self._batch_at: float | None = None
        """When a batch request last started, or ended."""
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, held: bool) -> None:
        """While held, nobody gets a slot: the engine is about to make way. Running requests go on."""
        if held != self._held:
            self._held = held
            self._fill()

    @property
    def held(self) -> bool:
        """Whether nobody gets a slot now, since the engine makes way."""
        return self._held

    @property
    def easing(self) -> Easing | None:
        """How the machine is spared now."""
        return self._easing

    def ease(self, easing: Easing | None) -> None:
        """Spare the machine so from now on; None: no more. Running requests are never touched, and those that
        wait are decided again.
        """
        if easing == self._easing:
            return
        self._easing = easing
        self._fill()
        self.look_again()

    def look_again(self) -> None:
        """Something has changed that requests without a slot should be decided again for."""
        for place in (*self._running, *(place for places in self._waiting.values() for place in places)):
            place.look_again()

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
        ahead = self._ahead(lane)
        if ahead == 0 and self._may_start(lane, now):
            self._grant(place, now)
            self._set_timer(now)
            self._on_change()
            return place
        if ahead >= self._max_queue:
            raise Rejected(
                "The queue is full.",
                reason="reject.queue_full",
                http_status=429,
                cause=f"{self._count()} requests wait and {len(self._running)} run.",
                retry_after_s=self._retry_after(lane),
            )
        self._waiting[lane].append(place)
        self._set_timer(now)
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
        ahead. The mean is exponentially weighted over complete replies. While the machine is spared it is
        known only for who would start without waiting for others.
        """
        if self._easing is not None and (self._easing.stops or lane == "batch"):
            return self._pause_left(self.clock()) * self._scale() if self._next_in_turn() else None
        slots = self._width()
        free = slots - len(self._running)
        ahead = sum(len(self._waiting[other]) for other in LANES[: LANES.index(lane) + 1])
        if free > ahead:
            return 0.0
        if self._service_s is None:
            return None
        now = self.clock()
        held = [now - place.granted_at for place in self._running if place.granted_at is not None]
        left = [self._left_s(since * self._scale(), self._service_s) for since in held]
        over = max(0, len(left) - slots)  # so many more are inside than may be: they must end first
        return (sorted(left)[over] if left else 0.0) + ahead * self._service_s / slots

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
            self._count(), len(self._running), lanes, self.predicted_wait(), self._slots, self._max_queue,
            self._easing, self.predicted_wait("batch"),
        )  # fmt: skip

    def _count(self) -> int:
        return sum(len(places) for places in self._waiting.values())

    def _ahead(self, lane: Lane) -> int:
        """Those who wait, as far as they count for who comes now: eased batch work is in nobody's way."""
        return len(self._waiting[lane]) if self._easing and lane == "interactive" else self._count()

    def _width(self) -> int:
        most = self._easing.at_once if self._easing is not None else None
        return self._slots if most is None else min(self._slots, most)

    def _may_start(self, lane: Lane, now: float) -> bool:
        """A request of this lane that nobody is ahead of may start."""
        if self._held or len(self._running) >= self._width():
            return False
        if self._easing is None:
            return True
        if self._easing.stops:
            return False
        if lane == "interactive":
            return True
        return (self._batch_has_its_turn() or self._batch_is_aged(now)) and self._pause_left(now) <= 0

    def _batch_has_its_turn(self) -> bool:
        return not self._running and not self._waiting["interactive"]

    def _batch_is_aged(self, now: float) -> bool:
        """Interactive work without a gap must not starve it for ever: it gets one slot."""
        easing, waiting = self._easing, self._waiting["batch"]
        if easing is None or not waiting or any(place.lane == "batch" for place in self._running):
            return False
        return now - waiting[0].entered >= _AGED * easing.pause_s

    def _next_in_turn(self) -> bool:
        """A new batch request would wait for nothing but the pause."""
        stops = self._held or (self._easing is not None and self._easing.stops)
        return not stops and self._batch_has_its_turn() and not self._waiting["batch"]

    def _pause_left(self, now: float) -> float:
        """Seconds of the pause between two batch requests."""
        if self._easing is None or self._batch_at is None:
            return 0.0
        return max(0.0, self._batch_at + self._easing.pause_s - now)

    def _set_timer(self, now: float) -> None:
        """For the end of the pause, while a batch request waits for nothing else."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        easing = self._easing
        if easing is None or easing.stops or self._held:
            return
        if self._waiting["batch"] and self._batch_has_its_turn():
            self._timer = self._later(self._pause_left(now), self._pause_over)

    def _pause_over(self) -> None:
        self._timer = None
        self._fill()
        self._on_change()

    def _retry_after(self, lane: Lane) -> int:
        if self._easing is not None and (lane == "batch" or self._easing.stops):
            return math.ceil(min(120.0, max(1.0, self._easing.pause_s)))
        wait = self.predicted_wait(lane)
        return 10 if wait is None else math.ceil(min(120.0, max(1.0, wait / self._scale())))

    def _scale(self) -> float:
        return min(1.0, max(_SLOWEST, self.learn_scale()))

    def leave(self, place: Place) -> None:
        """Free a place, whatever it was; twice does nothing."""
        if place in self._running:
            self._running.remove(place)
            if place.lane == "batch":
                self._batch_at = self.clock()
            if place.completed and place.granted_at is not None:
                self._learn((self.clock() - place.granted_at) * self._scale())
            self._fill()
        elif place in self._waiting[place.lane]:
            self._waiting[place.lane].remove(place)
            self._fill()
        self._on_change()

    def _learn(self, seconds: float) -> None:
        known = self._service_s
        self._service_s = seconds if known is None else known + _WEIGHT * (seconds - known)

    def _fill(self) -> None:
        now = self.clock()
        if self._batch_is_aged(now) and self._may_start("batch", now):
            self._grant(self._waiting["batch"].popleft(), now)
        for lane in LANES:
            places = self._waiting[lane]
            while places and self._may_start(lane, now):
                self._grant(places.popleft(), now)
        self._set_timer(now)

    def _grant(self, place: Place, now: float) -> None:
        self._running.add(place)
        if place.lane == "batch":
            self._batch_at = now
        for running in self._running:
            running.streams = max(running.streams, len(self._running))
        place.grant(now)
