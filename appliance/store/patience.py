"""How patient a pull is: what holds for all its transfers, and when a place is given up."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.errors import DownloadError
from appliance.store.limiter import Bucket
from appliance.store.progress import Reporter
from appliance.store.threads import StopFlag
from appliance.store.types import Limits, Phase
from appliance.web import Client, Patience

log = logging.getLogger("appliance.store")


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every transfer of one pull."""

    limits: Limits
    connections: int
    bucket: Bucket
    env: Mapping[str, str]
    """Where proxies are looked up."""
    report: Reporter
    stop: StopFlag

    def client(self) -> Client:
        """A client for one thread."""
        limits = self.limits
        return Client(Patience(limits.connect_s, limits.silence_s, limits.redirects), self.env)

    def count(self, n_bytes: int, halt: StopFlag) -> None:
        """Bytes came from a source. Waits where they came faster than is allowed. Raises Stopped."""
        self.report.add_fetched(n_bytes)
        wait = self.bucket.take(n_bytes)
        if wait > 0:
            halt.wait(wait)


class Patient:
    """Counts tries at one host without a new byte, and says how long to wait before the next."""

    def __init__(self, host: str, name: str, terms: Terms, phase: Phase = "downloading") -> None:
        self._host = host
        self._name = name
        self._terms = terms
        self._phase: Phase = phase
        self._failures = 0
        self._counted_at = 0.0
        self._moving = False

    def moved(self) -> None:
        """New bytes came."""
        self._moving = True

    def failed(self, began: float, why: str, asked_s: float | None) -> float:
        """A try that began at `began` (monotonic) failed. Returns the seconds to wait.

        Connections that break together count once. Raises DownloadError when it was the last try, or when
        the server asks for too long a wait.
        """
        limits = self._terms.limits
        if asked_s is not None and asked_s > limits.retry_after_max_s:
            raise DownloadError(
                f"{self._host} asks to wait {asked_s:.0f} seconds.",
                cause=why,
                hint="Pull again after that time; what has arrived is kept.",
            )
        if self._moving:
            self._failures, self._moving = 0, False
        elif began >= self._counted_at:
            self._failures += 1
            self._counted_at = time.monotonic()
        if self._failures >= limits.attempts:
            raise DownloadError(
                f"{self._name} can't be fetched from {self._host}.",
                cause=f"{why}, {self._failures} times without a new byte.",
                hint="Check the network and pull again; what has arrived is kept.",
            )
        backoff = min(limits.backoff_max_s, limits.backoff_s * 2 ** max(0, self._failures - 1))
        wait: float = max(asked_s or 0.0, backoff * random.uniform(0.75, 1.25))  # noqa: S311 - jitter
        log.info("%s: %s; next try in %.1f s", self._name, why, wait)
        report = self._terms.report
        report.phase(self._phase, total=report.whole, message=f"{why}; trying again")
        return wait
