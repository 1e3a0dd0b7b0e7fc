"""Turns counters that threads move into Progress values for people."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from appliance.store.types import OnProgress, Phase, Progress

_TICK_S = 0.1
_RATE_WINDOW_S = 3.0


class Reporter:
    """Owns the progress of one variant. Make it in the event loop; the rest may be used from any thread."""

    def __init__(self, ref: str, total: int | None, *, resumable: bool, publish: OnProgress) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._counting = threading.Lock()
        self._ref = ref
        self._publish = publish
        self._resumable = resumable
        self.whole = total
        """Bytes of all files of the variant."""
        self._total = total
        self._phase: Phase = "waiting"
        self._message: str | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._last: Progress | None = None
        self.base = 0
        """Bytes of the files that are finished."""
        self.done = 0
        """Bytes of the file at work."""
        self.file = ""
        self.fetched = 0
        """Bytes that came from the source in this run, those fetched again included."""

    def phase(self, phase: Phase, *, total: int | None = None, message: str | None = None) -> None:
        """Enter a phase and publish at once; from another thread than the loop's, a moment later."""
        if threading.get_ident() != self._thread:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._enter, phase, total, message)
            return
        self._enter(phase, total, message)

    def _enter(self, phase: Phase, total: int | None, message: str | None) -> None:
        if phase != self._phase:
            self._samples.clear()
        self._phase, self._total, self._message = phase, total, message
        self.publish()

    def add_fetched(self, n_bytes: int) -> None:
        """Bytes came from the source; several threads may say so at once."""
        with self._counting:
            self.fetched += n_bytes

    def publish(self) -> None:
        """Hand out the present state, if it changed."""
        now, done = time.monotonic(), self.base + self.done
        rate = self._rate(now, done)
        left = None if self._total is None else max(0, self._total - done)
        eta = left / rate if left is not None and rate else None
        found = Progress(
            self._ref, self.file, self._phase, done, self._total, rate, eta, self._resumable, self._message
        )
        if self._last is None or _differs(found, self._last):
            self._last = found
            self._publish(found)

    @property
    def last(self) -> Progress | None:
        """What was published last."""
        return self._last

    def state(self) -> dict[str, Any]:
        """`last` as a document: what the lock tells those who follow."""
        last = self._last
        return {} if last is None else dataclasses.asdict(last)

    def _rate(self, now: float, done: int) -> float | None:
        samples = self._samples
        if samples and done < samples[-1][1]:
            samples.clear()  # it started over
        samples.append((now, done))
        while len(samples) > 2 and samples[0][0] < now - _RATE_WINDOW_S:
            samples.popleft()
        elapsed, moved = now - samples[0][0], done - samples[0][1]
        return moved / elapsed if elapsed >= _TICK_S and moved > 0 else None

    @contextlib.asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        """Publish ten times a second while the body runs."""
        ticker = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            ticker.cancel()
            await asyncio.wait({ticker})
            if not ticker.cancelled() and (broken := ticker.exception()) is not None:
                raise broken  # the caller's on_progress failed

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.publish()


def _differs(a: Progress, b: Progress) -> bool:
    return (a.file, a.phase, a.done, a.total, a.message) != (b.file, b.phase, b.done, b.total, b.message)
