"""One request's place in the queue of an engine, what the queue looks like, and how the machine is spared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from appliance.routing import Lane


@dataclass(frozen=True, slots=True)
class Easing:
    """How a machine that is hot, or on battery, is spared: batch work waits first.

    A batch request starts only when nothing else is inside the engine or waits for it interactively, and
    `pause_s` after the end of the one before: so it is slowed, however long its replies are. One that has
    waited for ten pauses goes before interactive ones, so that it still gets its turn.
    """

    why: str
    """A clause, for people: `heat slows the machine`."""
    pause_s: float
    """From the end of a batch request to the start of the next."""
    at_once: int | None = None
    """So many requests inside the engine at once; None: as many as it has slots."""
    stops: bool = False
    """Nothing starts, of whatever lane. What runs goes on."""


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
    easing: Easing | None = None
    """Batch work waits first, and why."""
    batch_wait: float | None = None
    """The same as `predicted_wait`, for a new batch request."""


class Owner(Protocol):
    """The queue, as its places know it."""

    clock: Callable[[], float]

    @property
    def easing(self) -> Easing | None: ...

    def leave(self, place: Place) -> None: ...


@dataclass(slots=True, eq=False)
class Place:
    """One request's place; leaving the `with` block frees it, whatever happened."""

    lane: Lane
    entered: float
    _queue: Owner = field(repr=False)
    granted_at: float | None = None
    streams: int = 1
    """The most places that held a slot at once while this one did, itself included."""
    completed: bool = False
    """Set it when the reply was complete: only then its time counts for the prediction."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _bound: asyncio.Timeout | None = field(default=None, repr=False)

    @property
    def held(self) -> bool:
        """Whether it holds a slot."""
        return self.granted_at is not None

    @property
    def waited_s(self) -> float:
        """Seconds in the queue, until now or until the slot came."""
        return (self.granted_at if self.granted_at is not None else self._queue.clock()) - self.entered

    @property
    def stopped(self) -> bool:
        """Nothing may start now: a request that holds a slot and has not begun must not, either."""
        easing = self._queue.easing
        return easing is not None and easing.stops

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for the slot; False when `timeout_s` passed first, or when something has changed that the
        request should be decided again for. The place stays in the queue then.
        """
        if self.held:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return self.held
        if not self.held:
            self._woken.clear()
        return self.held

    @contextmanager
    def ends_when_stopped(self, bound: asyncio.Timeout) -> Iterator[None]:
        """While the block runs, `bound` (the one around it) runs out as soon as nothing may start."""
        self._bound = bound
        if self.stopped:
            self._cut()
        try:
            yield
        finally:
            self._bound = None

    def look_again(self) -> None:
        """The request should be decided again, unless it has begun."""
        if not self.held:
            self._woken.set()
        elif self.stopped:
            self._cut()

    def grant(self, now: float) -> None:
        """It holds a slot from now on."""
        self.granted_at = now
        self._woken.set()

    def _cut(self) -> None:
        if self._bound is not None and not self._bound.expired():
            self._bound.reschedule(asyncio.get_running_loop().time())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.leave(self)
