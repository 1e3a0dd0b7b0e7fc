"""How often a crash is answered by a restart, and after which pause. Values and a clock only, no process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from appliance.engines.limits import Limits

FIRST_REQUESTS = 8
"""An engine that dies of a signal within so many requests, after a larger plan ran out of memory, most likely
ran out of it, too: the buffers for real work are the last ones that it takes."""


class Crashes:
    """The crashes of one engine since its `start`.

    An engine that never was ready is not started again: a load that failed will fail the same way. One that
    worked is restarted up to `limits.restarts` times within `limits.window_s`.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._times: deque[float] = deque()
        self._proven = False
        self.restarts = 0
        """Restarts over the life of this object."""

    def forget(self) -> None:
        """A person started it again."""
        self._times.clear()
        self._proven = False

    def answered(self, was_ready: bool) -> bool:
        """Note a crash; True when it is answered by a restart."""
        now = self._clock()
        self._times.append(now)
        while now - self._times[0] > self._limits.window_s:
            self._times.popleft()
        self._proven = self._proven or was_ready
        if not self._proven or self.many:
            return False
        self.restarts += 1
        return True

    @property
    def many(self) -> bool:
        """More crashes than are answered."""
        return len(self._times) > self._limits.restarts

    @property
    def pause_s(self) -> float:
        """Before the next start: longer with each crash of the window."""
        steps = self._limits.backoff_s
        return steps[min(len(self._times), len(steps)) - 1] if steps else 0.0

    @property
    def sentence(self) -> str:
        """What to say when no restart follows any more."""
        minutes = self._limits.window_s / 60
        return f"The engine crashed {len(self._times)} times in {minutes:.0f} minutes; it stays down."
