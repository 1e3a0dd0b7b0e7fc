"""Keeps requests away from a remote that fails, and lets one through at times to see whether it is back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from appliance.remotes.types import BreakerState, Outcome

FAILURES: Final[frozenset[Outcome]] = frozenset({"refused", "timeout", "reset", "5xx"})
"""What counts. A 4xx is the request's fault, and a cancel is the client's."""

THRESHOLD = 3
"""So many failures without a success between them, each within MEMORY_S of the one before, open it."""
MEMORY_S = 60.0
FIRST_S = 5.0
LONGEST_S = 120.0
"""Back-off: 5, 10, 20 ... 120 seconds, each with jitter, so that many appliances don't come back as one."""
JITTER = 0.2
TRIAL_S = 120.0
"""A half-open trial whose end nobody reported is given up after this time."""


class Breaker:
    """closed -> (failures) -> open -> (back-off) -> half-open -> one trial -> closed, or open for longer.

    Nothing here waits: states are read against the clock. One thread (the event loop) uses it.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = lambda: random.SystemRandom().uniform(-JITTER, JITTER),
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._failures = 0
        self._last_failure = 0.0
        self._opened = 0
        self._open_until: float | None = None
        self._hold_until = 0.0
        self._trial_until = 0.0

    @property
    def state(self) -> BreakerState:
        """Where it stands now."""
        now = self._clock()
        if now < self._hold_until:
            return "open"
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half-open"

    @property
    def allows(self) -> bool:
        """A request may be sent now; in half-open only one at a time."""
        state = self.state
        return state == "closed" or (state == "half-open" and self._clock() >= self._trial_until)

    @property
    def reopens_in_s(self) -> float | None:
        """Seconds until a request may be tried again; None when one may be sent already."""
        now = self._clock()
        until = max(self._hold_until, self._open_until or 0.0)
        if self.state == "half-open":
            until = self._trial_until
        return until - now if until > now else None

    def begin(self) -> None:
        """A request is about to be sent: in half-open it is the trial, and the others wait for its end."""
        if self.state == "half-open":
            self._trial_until = self._clock() + TRIAL_S

    def report(self, outcome: Outcome, *, retry_after_s: float | None = None) -> None:
        """A request ended. `retry_after_s` is the remote's own wish (429, 503): nothing is sent before."""
        now = self._clock()
        if retry_after_s is not None and outcome in ("4xx", "5xx"):
            self._hold_until = max(self._hold_until, now + min(max(retry_after_s, 0.0), LONGEST_S))
        half_open = self.state == "half-open" or self._trial_until > now
        self._trial_until = 0.0
        if outcome in FAILURES:
            self._failed(now, half_open=half_open)
        elif outcome == "ok" or (outcome == "4xx" and half_open):
            # The remote judged a request: it is back, whatever it thought of this one.
            self._failures, self._opened, self._open_until = 0, 0, None

    def _failed(self, now: float, *, half_open: bool) -> None:
        if self._open_until is not None and not half_open:
            return  # a late failure of a request sent before it opened says nothing new
        fresh = now - self._last_failure <= MEMORY_S
        self._failures = self._failures + 1 if fresh else 1
        self._last_failure = now
        if half_open or self._failures >= THRESHOLD:
            wait = min(FIRST_S * 2.0**self._opened, LONGEST_S)
            self._opened = min(self._opened + 1, 16)
            self._failures = 0
            self._open_until = now + wait * (1.0 + self._jitter())
