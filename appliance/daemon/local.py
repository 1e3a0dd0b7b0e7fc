"""The gateway's view of the local side: one served model, its queue, its heat, what an answer lacks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from appliance.catalog import ModelRef
from appliance.daemon import differences
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.serving import Serving
from appliance.daemon.speeds import BandwidthLearner, conditions_of, power_of
from appliance.engines import Endpoint, Lease
from appliance.errors import UnknownModel
from appliance.gateway.admission import Admission, QueueSnapshot
from appliance.gateway.ports import Conditions, Outcome, Served
from appliance.monitor import Monitor, speed_key
from appliance.operations.lessons.speeds import plan_key
from appliance.operations.models import Library
from appliance.routing import LocalView

PENDING_STATES = ("starting", "loading")
SHORTEST_SPEED_SAMPLE = 8
"""Tokens; a shorter reply says nothing about decode speed."""


class LocalSide:
    """Implements `appliance.gateway.ports.Local` over the one served model."""

    def __init__(
        self, library: Library, serving: Serving, monitor: Monitor, learner: BandwidthLearner | None = None
    ) -> None:
        self._library = library
        self._serving = serving
        self._monitor = monitor
        self._learner = learner
        self._admission: Admission | None = None
        self._queue_of: ModelRef | None = None
        self._changed = asyncio.Event()

    def use(self, library: Library) -> None:
        """Take over changed settings."""
        self._library = library
        if self._admission is not None:
            self._admission.resize(self._admission.snapshot.slots, library.settings.routing.max_queue)

    def update(self, snapshot: ServingSnapshot) -> None:
        """The state changed: wake who waits for it, and keep the queue as wide as the engine's slots."""
        read_back = snapshot.engine.parallel if snapshot.engine is not None else None
        planned = snapshot.plan.parallel if snapshot.plan is not None else 1
        max_queue = self._library.settings.routing.max_queue
        if self._admission is not None and snapshot.ref == self._queue_of:
            self._admission.resize(read_back or planned, max_queue)
        elif snapshot.state not in ("absent", "failed"):
            # another model takes other times: what was learned of the one before predicts nothing
            self._admission, self._queue_of = (
                Admission(read_back or planned, max_queue, learn_scale=self.heat_factor),
                snapshot.ref,
            )
        self._changed.set()
        self._changed = asyncio.Event()

    def heat_factor(self) -> float:
        """Measured over usual speed while heat slows this machine, else 1."""
        heat = self._monitor.snapshot
        return heat.factor if heat.thermal == "throttled" else 1.0

    def queue_snapshot(self) -> QueueSnapshot | None:
        """The queue as people wait in it: seconds at the speed of now."""
        if self._admission is None:
            return None
        snapshot = self._admission.snapshot
        usual = snapshot.predicted_wait
        return replace(snapshot, predicted_wait=None if usual is None else usual / self.heat_factor())

    @property
    def quiet(self) -> bool:
        """No request runs or waits."""
        queue = self._admission.snapshot if self._admission is not None else None
        return queue is None or (queue.running == 0 and queue.waiting == 0)

    def resolve(self, name: str | None) -> Served:
        current = self._serving.snapshot.ref
        if not name:
            if current is None:
                raise UnknownModel(
                    "No model is served, and the request names none.", hint="`appliance up MODEL` serves one."
                )
            return _served(current, here=True)
        name = self._library.settings.aliases.get(name, name)
        if current is not None and name in (current.id, current.ref, current.model.family):
            return _served(current, here=True)
        try:
            found = self._library.catalog.resolve(name)
        except UnknownModel as error:
            raise _with_served(error, current) from None
        return _served(found, here=self._library.store.find(found.ref) is not None)

    def _is_current(self, served: Served) -> bool:
        current = self._serving.snapshot.ref
        return current is not None and current.ref == served.ref

    def view(self, served: Served) -> LocalView | None:
        if not self._is_current(served):
            return None
        snapshot = self._serving.snapshot
        heat = self._monitor.snapshot
        queue = self._admission.snapshot if self._admission is not None else None
        max_queue = self._library.settings.routing.max_queue
        return LocalView(
            state=snapshot.state,
            slots=queue.slots if queue else 1,
            running=queue.running if queue else 0,
            waiting=queue.waiting if queue else 0,
            max_queue=max_queue,
            predicted_wait_s=queue.predicted_wait if queue else None,
            ctx=self._ctx(snapshot),
            thermal=heat.thermal,
            factor=heat.factor,
            serves=True,
            detail=_why_not(snapshot),
        )

    @staticmethod
    def _ctx(snapshot: ServingSnapshot) -> int | None:
        if snapshot.engine is not None and snapshot.engine.ctx is not None:
            return snapshot.engine.ctx
        return snapshot.plan.ctx if snapshot.plan is not None else None

    def endpoint(self, served: Served) -> Endpoint | None:
        return self._serving.endpoint if self._is_current(served) else None

    async def ready(self, served: Served) -> Endpoint | None:
        while self._is_current(served):
            changed = self._changed
            endpoint = self._serving.endpoint
            if endpoint is not None:
                return endpoint
            if self._serving.snapshot.state not in PENDING_STATES:
                return None
            await changed.wait()
        return None

    def admission(self, served: Served) -> Admission | None:
        return self._admission if self._is_current(served) else None

    @contextmanager
    def busy(self, served: Served) -> Iterator[Lease | None]:
        engine = self._serving.engine if self._is_current(served) else None
        if engine is None:
            yield None
            return
        with engine.busy() as lease:
            yield lease

    def degraded(self, served: Served) -> tuple[str, ...]:
        if not self._is_current(served):
            return ()
        snapshot = self._serving.snapshot
        codes: list[str] = []
        if snapshot.survey is not None and snapshot.survey.gpu_unused() is not None:
            codes.append("cpu_fallback")
        codes += [code for code in differences.codes(snapshot) if code not in codes]
        if self._library.settings.engine.accept_cpu and "cpu_fallback" in codes:
            codes.remove("cpu_fallback")
        if self._monitor.snapshot.thermal == "throttled":
            codes.append("throttled")
        return tuple(codes)

    def finished(self, served: Served, outcome: Outcome) -> None:
        speed = outcome.tokens_per_second
        if not outcome.ok or speed is None or not self._is_current(served):
            return
        snapshot = self._serving.snapshot
        engine = self._serving.engine
        if engine is not None:
            engine.observe_speed(speed)
        if snapshot.plan is None or (outcome.tokens_out or 0) < SHORTEST_SPEED_SAMPLE:
            return
        tokens = (outcome.tokens_in or 0) + (outcome.tokens_out or 0)
        plan, power = plan_key(snapshot.plan), power_of(self._monitor.snapshot)
        key = speed_key(served.ref, plan, power, streams=outcome.running, tokens=tokens)
        self._monitor.observe_speed(key, speed)
        if self._learner is not None and not self.degraded(served):
            self._learner.learn(snapshot.plan, outcome, self.conditions(served))

    def conditions(self, served: Served) -> Conditions:
        plan = self._serving.snapshot.plan if self._is_current(served) else None
        return conditions_of(self._monitor.snapshot, plan)

    def models(self) -> Sequence[Served]:
        """What answers now: the served model, and those that a remote is configured for."""
        current = self._serving.snapshot.ref
        found = {current.ref: _served(current, here=True)} if current is not None else {}
        for remote in self._library.settings.remotes:
            for name in remote.models:
                with contextlib.suppress(UnknownModel):
                    ref = self._library.catalog.resolve(name, self._library.settings.aliases)
                    found.setdefault(ref.ref, _served(ref, here=False))
        return list(found.values())


def _why_not(snapshot: ServingSnapshot) -> str:
    """What a refused client should read: what happened to the engine, and what to do."""
    if snapshot.state not in ("failed", "absent"):
        return ""
    engine, error = snapshot.engine, snapshot.error
    parts: tuple[str | None, ...] = ()
    if error is not None:
        parts = (error.message, error.cause, error.hint)
    elif snapshot.state == "absent" and snapshot.ref is not None:
        ref = snapshot.ref.ref
        parts = (
            f"{ref} was unloaded.",
            f"`appliance` and its key r load it again, or `appliance down` and then `appliance up {ref}`.",
        )
    elif engine is not None:
        parts = (engine.error, engine.cause, engine.hint)
    return " ".join(part for part in parts if part)


def _with_served(error: UnknownModel, current: ModelRef | None) -> UnknownModel:
    """The error, and the name that would work now."""
    served = f"Served now: {current.ref}." if current is not None else None
    hint = " ".join(part for part in (served, error.hint) if part)
    return UnknownModel(error.message, cause=error.cause, hint=hint)


def _served(ref: ModelRef, *, here: bool) -> Served:
    return Served(ref.id, ref.ref, tuple(ref.model.use), here)
