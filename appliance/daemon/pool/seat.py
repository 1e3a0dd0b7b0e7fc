"""One model of the pool: its engine's owner, its queue, who wants it, and since when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.catalog import ModelRef
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.serving import Serving
from appliance.daemon.watching import PlanWatch
from appliance.engines.pool import Standing, cool_s
from appliance.engines.pool.turns import State
from appliance.errors import DoesNotFit
from appliance.gateway.admission import Admission
from appliance.operations.plans.plan import Wishes

READY = ("ready", "busy")
PENDING = ("starting", "loading")


class Seat:
    """Everything that belongs to one model. Times are seconds of `time.monotonic`."""

    def __init__(self, ref: ModelRef, serving: Serving, queue: Admission, wake: Callable[[], None]) -> None:
        self.ref = ref
        self.serving = serving
        self.queue = queue
        self.watch: PlanWatch | None = None
        self.wishes = Wishes()
        """Of the person who loaded it last; a request loads it with the same."""
        self.pinned = False
        self.last = ServingSnapshot()
        """The snapshot before the next change."""
        self.changed = asyncio.Event()
        """Replaced and set at each change of the engine's state."""
        self.last_used = time.monotonic()
        self.idle_since: float | None = self.last_used
        self.ready_since: float | None = None
        self.load_s: float | None = None
        """How long its last load took, from the look at the machine on."""
        self.estimate_s: float | None = None
        """How long a load would take, by earlier ones and by the disk."""
        self.estimated_at = 0.0
        self.failures = 0
        """Loads in a row that failed."""
        self.retry_at = 0.0
        self.missed = False
        """A remote answered since it was not loaded."""
        self._wake = wake
        self._arrivals: dict[object, float] = {}
        self._was_failed = False
        self._loading_since: float | None = None

    @property
    def state(self) -> State:
        """For the turns: what its engine is."""
        state = self.serving.snapshot.state
        if state in READY and self.serving.endpoint is not None:
            return "ready"
        if state in (*PENDING, *READY, "stopping"):
            return "loading"
        return "failed" if state == "failed" else "cold"

    @property
    def wanted(self) -> int:
        """Requests that want it now, those inside the engine included."""
        return len(self._arrivals)

    @contextmanager
    def wants(self) -> Iterator[None]:
        """Held by each request while it wants this model."""
        token = object()
        self._arrivals[token] = time.monotonic()
        self.idle_since = None
        self._wake()
        try:
            yield
        finally:
            del self._arrivals[token]
            self.last_used = time.monotonic()
            if not self._arrivals:
                self.idle_since = self.last_used
            self._wake()

    def standing(self, keep_s: float | None) -> Standing:
        """Its place among the others."""
        state = self.state
        running = min(self.wanted, self.queue.snapshot.running) if state == "ready" else 0
        return Standing(
            ref=self.ref.ref,
            state=state,
            running=running,
            waiting=self.wanted - running,
            waiting_since=next(iter(self._arrivals.values()), None),
            ready_since=self.ready_since,
            idle_since=self.idle_since,
            last_used=self.last_used,
            pinned=self.pinned,
            keep_s=keep_s,
            load_s=self.load_s,
            retry_at=self.retry_at,
        )

    def follow(self, snapshot: ServingSnapshot) -> None:
        """The engine's state changed: wake who waits for it, and keep the queue as wide as its slots."""
        now = time.monotonic()
        read_back = snapshot.engine.parallel if snapshot.engine is not None else None
        planned = snapshot.plan.parallel if snapshot.plan is not None else 1
        self.queue.resize(read_back or planned)
        if snapshot.state in PENDING and self._loading_since is None:
            self._loading_since = now
        if snapshot.state in READY:
            if self.ready_since is None:
                self.ready_since = now
                self.load_s = None if self._loading_since is None else now - self._loading_since
            self._loading_since = None
            self.failures, self.retry_at, self.missed = 0, 0.0, False
        else:
            self.ready_since = None
            if snapshot.state not in PENDING:
                self._loading_since = None
        if snapshot.state == "failed" and not self._was_failed:
            self._leave_alone(now)
        self._was_failed = snapshot.state == "failed"
        self.look_again()

    def look_again(self) -> None:
        """Whoever waits for the engine looks again at how it stands."""
        self.changed.set()
        self.changed = asyncio.Event()
        self._wake()

    def settings_changed(self) -> None:
        """What did not fit may fit now: the next request tries again."""
        if isinstance(self.serving.snapshot.error, DoesNotFit) and self.state == "failed":
            self.failures, self.retry_at = 0, 0.0

    def load_left_s(self, now: float) -> float | None:
        """Seconds until it would be ready, by its last load here, else as estimated; None: not known."""
        known = self.serving.snapshot.load_estimate
        told = known.seconds if known is not None else self.estimate_s
        whole = self.load_s if self.load_s is not None else told
        if whole is None:
            return None
        since = self._loading_since
        return whole if since is None else max(0.0, whole - (now - since))

    def _leave_alone(self, now: float) -> None:
        """It failed: requests don't load it again for a while."""
        self.failures += 1
        self.retry_at = now + cool_s(self.failures)
        self.missed = False
