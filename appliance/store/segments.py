"""Which bytes are asked for next. Pure and without locks: the owner calls it under one.

Connections take segments in the order of the file. What is taken lies within a window behind the first
missing byte, so that the hash can follow from the page cache. When nothing may be taken, a connection with
nothing to do takes over the back half of what a slow one has still to bring, or all of it from one that is
stuck: otherwise a single bad connection would hold up the others at the end of the window.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass

SEGMENT = 64 << 20
"""Bytes of a segment at most."""
_SLOW_S = 2.0
"""A segment that will be here sooner is left to the connection that has it."""
_STUCK_S = 3.0
_FASTER = 4
"""The last chunk of a segment is taken from a connection that needs longer than this, and so many times as
long as the one that takes it. The factor keeps connections that are all slow from robbing each other."""


@dataclass(slots=True, eq=False)
class Span:
    """A piece of the file that one connection brings. Everything before `at` is here."""

    start: int
    at: int
    stop: int
    """May become smaller while it is brought: another connection took the rest."""
    since: float
    busy: bool = False
    """Bytes before `at` are still being written."""

    @property
    def done(self) -> bool:
        return self.at >= self.stop

    def seconds_left(self, now: float) -> float:
        """At the rate so far; while nothing has come, as long as it has taken."""
        gone = self.at - self.start
        return (self.stop - self.at) * (now - self.since) / gone if gone else now - self.since

    def rate(self, now: float) -> float:
        """Bytes per second so far."""
        return (self.at - self.start) / max(now - self.since, 1e-6)


def segment_for(missing: int, connections: int, chunk: int, largest: int = SEGMENT) -> int:
    """Bytes of a segment: so that each connection gets about two, in whole chunks."""
    wanted = min(largest, missing // (2 * connections))
    return max(1, -(-wanted // chunk)) * chunk


class Window:
    """Hands out what is missing. `gaps` are (first byte, byte after the last), in order."""

    def __init__(self, gaps: Iterable[tuple[int, int]], *, chunk: int, segment: int, ahead: int) -> None:
        self._queue = list(gaps)
        self._running: list[Span] = []
        self._chunk = chunk
        self._segment = segment
        self._ahead = max(ahead, segment)

    @property
    def first_missing(self) -> int | None:
        """None when nothing is missing."""
        starts = [span.at for span in self._running if not span.done] + [
            start for start, _ in self._queue[:1]
        ]
        return min(starts, default=None)

    @property
    def running(self) -> tuple[Span, ...]:
        return tuple(self._running)

    def take(self, now: float, rate: float = 0.0) -> Span | None:
        """The next piece to bring; None when there is none to give now.

        `rate` is how many bytes per second the connection that asks brought lately.
        """
        found = self._from_queue(now) or self._from_the_slowest(now, rate)
        if found is not None:
            self._running.append(found)
        return found

    def _from_queue(self, now: float) -> Span | None:
        first = self.first_missing
        if not self._queue or first is None:
            return None
        start, end = self._queue[0]
        stop = min(end, start // self._chunk * self._chunk + self._segment)
        if stop > first + self._ahead and start > first:
            return None  # no smaller one either: the file would be asked for in crumbs
        self._queue[0:1] = [(stop, end)] if stop < end else []
        return Span(start, start, stop, now)

    def _from_the_slowest(self, now: float, rate: float) -> Span | None:
        running = [span for span in self._running if not span.done]
        slowest = max(running, key=lambda span: span.seconds_left(now), default=None)
        if slowest is None or slowest.seconds_left(now) < _SLOW_S:
            return None
        middle = -(-((slowest.at + slowest.stop) // 2) // self._chunk) * self._chunk
        if not slowest.at < middle < slowest.stop:  # a chunk is brought by one connection at a time
            left, wait = slowest.stop - slowest.at, slowest.seconds_left(now)
            if slowest.busy or wait < _STUCK_S or wait * rate < _FASTER * left:
                return None
            middle = slowest.at
        stop, slowest.stop = slowest.stop, middle
        return Span(middle, middle, stop, now)

    def adopt(self, span: Span) -> None:
        """Count a piece that was taken elsewhere as running."""
        self._running.append(span)

    def give_back(self, span: Span) -> None:
        """A connection has ended with `span`; what it did not bring is the next to be taken."""
        if span not in self._running:
            return  # of a window that was made anew: what is missing of it is known there
        self._running.remove(span)
        if not span.done:
            bisect.insort(self._queue, (span.at, span.stop))
