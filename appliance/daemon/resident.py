"""What others see of a model's engine, and how its state becomes the one that they see."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from appliance.daemon.served import ServingSnapshot
from appliance.engines import Endpoint, Engine, EngineSnapshot, LogLine, LogRing


class Resident:
    """The part of `Serving` that is read. Only its owner task writes here."""

    def __init__(self, on_change: Callable[[ServingSnapshot], None], ring: LogRing | None) -> None:
        self._on_change = on_change
        self._snapshot = ServingSnapshot(since=time.time())
        self._engine: Engine | None = None
        self._ring = ring or LogRing()
        self._phase: Literal["", "leaving", "loading", "stopping"] = ""
        """An engine makes way for another plan; a load is at work; an engine is about to be stopped."""

    @property
    def snapshot(self) -> ServingSnapshot:
        return self._snapshot

    def uses(self, ref: str) -> bool:
        """The engine runs with this model's files, or ended because they are not right."""
        return self._snapshot.uses(ref)

    def lacks(self, ref: str) -> bool:
        """This model would be served, but its files were damaged, or removed."""
        return self._snapshot.lacks(ref)

    @property
    def engine(self) -> Engine | None:
        """The engine, for leases, log lines and measured speeds."""
        return self._engine

    def lines(self, after: int, limit: int) -> tuple[LogLine, ...]:
        """Log lines of the engine, and of those before it, with a sequence number above `after`."""
        return self._ring.lines(after, limit)

    @property
    def endpoint(self) -> Endpoint | None:
        """Where to send a request; None unless the engine is ready, and stays."""
        return self._engine.endpoint if self._engine is not None and not self._phase else None

    def _engine_changed(self, snapshot: EngineSnapshot) -> None:
        if self._engine is None:
            return
        if snapshot.state == "failed" and not self._phase and self._plans_anew(snapshot):
            self._phase = "leaving"
        ended = snapshot.state in ("failed", "stopping", "absent")
        goes_on = self._phase == "leaving" or (self._phase == "loading" and ended)
        state = "starting" if goes_on else snapshot.state
        if self._phase == "loading" and state in ("ready", "busy"):
            state = "loading"  # what it had in its caches is still being brought back
        self._set(replace(self._snapshot, state=state, engine=snapshot))

    def _plans_anew(self, snapshot: EngineSnapshot) -> bool:
        """An engine failed: whether another plan takes its place."""
        return False

    def _set(self, snapshot: ServingSnapshot) -> None:
        changed = snapshot.state != self._snapshot.state
        self._snapshot = replace(snapshot, since=time.time() if changed else self._snapshot.since)
        self._on_change(self._snapshot)
