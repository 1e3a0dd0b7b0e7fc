"""Blocking work beside the event loop, which always ends before its owner goes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Stopped(Exception):
    """The owner was cancelled; raised inside the thread, never seen outside."""


class StopFlag:
    """Asks threads to end soon."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._calls: list[Callable[[], None]] = []

    def set(self) -> None:
        """Ask. What was given to `calling` is called at once, in this thread."""
        self._event.set()
        with self._lock:
            calls = tuple(self._calls)
        for call in calls:
            call()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        """Called by a thread between two pieces of work. Raises Stopped."""
        if self._event.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Sleep that a stop ends at once. Raises Stopped."""
        if self._event.wait(seconds):
            raise Stopped

    @contextlib.contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """While the body runs, `set` calls `call` (short, from any thread); at once when it is set."""
        with self._lock:
            self._calls.append(call)
        try:
            if self.is_set:
                call()
            yield
        finally:
            with self._lock:
                self._calls.remove(call)


async def run(stop: StopFlag | None, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread. When cancelled: ask it to stop, wait until it has, then let the cancel go on.

    A thread can't be ended from outside; without the wait it would still write while the next owner
    starts on the same file.
    """
    return await settled(asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs)), stop)


async def settled(task: asyncio.Future[T], stop: StopFlag | None = None) -> T:
    """Wait for `task` through any cancel; once it has ended, let the cancel go on."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                continue  # asked twice; the work still has to end first
        if not task.cancelled():
            task.exception()  # seen, so that it is not reported as lost
        raise
