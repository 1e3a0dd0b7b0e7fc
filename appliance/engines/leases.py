"""The requests inside one engine, and what they tell about its life.

A sign of life is a piece of a reply, or a reply that is whole. Silence is the time in which requests were
inside without a sign: it adds up over requests that come and go, so that clients which give up early can't
hide an engine that answers nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from appliance.engines.values import Endpoint

SUSPICIOUS = 2
"""Requests in a row that ended as if the engine were broken."""


class Lease:
    """One request inside the engine."""

    def __init__(self, leases: Leases, endpoint: Endpoint, began: float) -> None:
        self._leases = leases
        self.endpoint = endpoint
        """Where to send the request."""
        self.began = began

    def beat(self) -> None:
        """A piece of the reply has arrived."""
        if self._leases.generation == self.endpoint.generation:
            self._leases.sign()

    def worked(self) -> None:
        """The reply is whole."""
        if self._leases.generation == self.endpoint.generation:
            self._leases.sign()
            self._leases.troubles = 0

    def suspect(self) -> None:
        """It ended with an error of the engine's own, nothing came in time, or it can't be connected to."""
        if self._leases.generation == self.endpoint.generation:
            self._leases.trouble()


class Leases:
    """All of them. `count` is over every process; silence and trouble are of the one that runs now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: list[Lease] = []
        self.generation = 0
        self.requests = 0
        """Since the process is ready."""
        self.signs = 0
        self.troubles = 0
        self.on_trouble: Callable[[], None] = lambda: None
        self._last_sign = clock()
        self._silent_s = 0.0
        self._silent_since: float | None = None

    @property
    def count(self) -> int:
        return len(self._held)

    def begin(self, generation: int) -> None:
        """Another process is ready: what was known of the one before says nothing about it."""
        self.generation, self.requests, self.troubles = generation, 0, 0
        self.sign()

    def take(self, endpoint: Endpoint) -> Lease:
        lease = Lease(self, endpoint, self._clock())
        self._held.append(lease)
        self.requests += 1
        if self._silent_since is None:
            self._silent_since = lease.began
        return lease

    def give_back(self, lease: Lease) -> None:
        self._held.remove(lease)
        if self._silent_since is not None and not self._inside():
            self._silent_s += self._clock() - self._silent_since
            self._silent_since = None

    def sign(self) -> None:
        """The engine has done something."""
        self.signs += 1
        self._last_sign, self._silent_s = self._clock(), 0.0
        self._silent_since = self._last_sign if self._inside() else None

    def trouble(self) -> None:
        self.troubles += 1
        if self.troubles >= SUSPICIOUS:
            self.on_trouble()

    @property
    def silent_s(self) -> float:
        """Seconds with a request inside and no sign of life, in all."""
        running = 0.0 if self._silent_since is None else self._clock() - self._silent_since
        return self._silent_s + running

    @property
    def longest_s(self) -> float:
        """How long one request that is inside now has waited without any sign; 0 without requests."""
        now = self._clock()
        return max((now - max(lease.began, self._last_sign) for lease in self._inside()), default=0.0)

    @property
    def since_sign_s(self) -> float:
        return self._clock() - self._last_sign

    def _inside(self) -> list[Lease]:
        """Those in the process that runs now: a client may hold on to the end of an older one's reply."""
        return [lease for lease in self._held if lease.endpoint.generation == self.generation]
