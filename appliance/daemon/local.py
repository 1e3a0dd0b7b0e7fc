"""The gateway's view of the local side: the pool's models, their queues, the heat, what an answer lacks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from appliance.catalog import ModelRef
from appliance.daemon import differences
from appliance.daemon.here import Here
from appliance.daemon.places import places_of
from appliance.daemon.pool import Pool, Seat
from appliance.daemon.queues import together
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.speeds import BandwidthLearner, conditions_of
from appliance.daemon.standing import state_of, why_not
from appliance.engines import Endpoint, Lease
from appliance.errors import UnknownModel
from appliance.gateway.admission import Admission, QueueSnapshot
from appliance.gateway.ports import Conditions, Outcome, Served
from appliance.monitor import CPU, Monitor, Pressure, pressure_on, speed_key
from appliance.operations.lessons.speeds import plan_key
from appliance.operations.models import Library
from appliance.routing import LocalView

SHORTEST_SPEED_SAMPLE = 8
"""Tokens; a shorter reply says nothing about decode speed."""
_WAITS = ("cold", "starting", "loading")


class LocalSide:
    """Implements `appliance.gateway.ports.Local` over the pool."""

    def __init__(
        self,
        library: Library,
        pool: Pool,
        here: Here,
        monitor: Monitor,
        learner: BandwidthLearner | None = None,
    ) -> None:
        self._library, self._pool, self._here = library, pool, here
        self._monitor, self._learner = monitor, learner

    def use(self, library: Library) -> None:
        """Take over changed settings."""
        self._library = library

    def queue_snapshot(self) -> QueueSnapshot | None:
        """All queues as people wait in them: seconds at the speed of now, those of the default model."""
        default = self._pool.default
        if default is None:
            return None
        snapshot = together([seat.queue.snapshot for seat in self._pool], default.queue.snapshot)
        factor = self._pressure(default).factor
        usual, batch = snapshot.predicted_wait, snapshot.batch_wait
        return replace(
            snapshot,
            predicted_wait=None if usual is None else usual / factor,
            batch_wait=None if batch is None else batch / factor,
        )

    def resolve(self, name: str | None) -> Served:
        default = self._pool.default
        if not name:
            if default is None:
                raise UnknownModel(
                    "No model is served, and the request names none.", hint="`appliance up MODEL` serves one."
                )
            return _served(default.ref, here=True)
        name = self._library.settings.aliases.get(name, name)
        for seat in self._resident(default):
            if name in (seat.ref.id, seat.ref.ref, seat.ref.model.family):
                return _served(seat.ref, here=True)
        try:
            found = self._here.resolve(name)
        except UnknownModel as error:
            raise _with_served(error, default) from None
        return _served(found, here=self._here.has(found.ref))

    def _resident(self, default: Seat | None) -> list[Seat]:
        """Whom a family or an id without quant may mean before all others: the default, then the loaded."""
        loaded = [seat for seat in self._pool if seat.state == "ready" and seat is not default]
        loaded.sort(key=lambda seat: -seat.last_used)
        return loaded if default is None else [default, *loaded]

    def view(self, served: Served) -> LocalView | None:
        seat, loadable = self._pool.find(served.ref), self._loadable(served)
        if seat is None and not loadable:
            return None
        if seat is not None:
            self._pool.estimate(seat)
        heat, settings = self._pressure(seat), self._library.settings
        queue = seat.queue.snapshot if seat is not None else None
        snapshot = seat.serving.snapshot if seat is not None else ServingSnapshot()
        now, easing = time.monotonic(), self._pool.sparing.easing
        return LocalView(
            state=state_of(seat, loadable=loadable, now=now),
            slots=queue.slots if queue else 1,
            running=queue.running if queue else 0,
            waiting=queue.waiting if queue else 0,
            max_queue=settings.routing.max_queue,
            predicted_wait_s=queue.predicted_wait if queue else None,
            ctx=_ctx(snapshot),
            thermal=heat.thermal,
            factor=heat.factor,
            serves=True,
            detail=why_not(snapshot),
            load_s=seat.load_left_s(now) if seat is not None else None,
            retry_s=seat.retry_at - now if seat is not None and seat.retry_at > now else None,
            danger=heat.why,
            danger_s=heat.ends_in_s,
            eases=easing.why if easing is not None else "",
            batch_waiting=queue.lanes["batch"] if queue else 0,
            batch_wait_s=queue.batch_wait if queue else None,
            at_once=easing.at_once if easing is not None else None,
        )

    def _loadable(self, served: Served) -> bool:
        """A request may load it: it is here, and nobody forbade it."""
        on_demand = self._library.settings.models.on_demand and not self._pool.halted
        return on_demand and served.here and served.ref in self._here.refs

    def _seat(self, served: Served) -> Seat | None:
        seat = self._pool.find(served.ref)
        if seat is None and self._loadable(served):
            with contextlib.suppress(UnknownModel):
                return self._pool.seat(self._here.resolve(served.ref))
        return seat

    def wanted(self, served: Served) -> AbstractContextManager[None]:
        seat = self._seat(served)
        return contextlib.nullcontext() if seat is None else seat.wants()

    def missed(self, served: Served) -> None:
        seat = self._seat(served)
        if seat is not None and self._loadable(served):
            self._pool.missed(seat.ref)

    def endpoint(self, served: Served) -> Endpoint | None:
        seat = self._pool.find(served.ref)
        return None if seat is None else seat.serving.endpoint

    async def ready(self, served: Served) -> Endpoint | None:
        while (seat := self._pool.find(served.ref)) is not None:
            changed = seat.changed
            if (endpoint := seat.serving.endpoint) is not None:
                return endpoint
            if state_of(seat, loadable=self._loadable(served), now=time.monotonic()) not in _WAITS:
                return None
            await changed.wait()
        return None

    def admission(self, served: Served) -> Admission | None:
        seat = self._seat(served)
        return None if seat is None else seat.queue

    @contextmanager
    def busy(self, served: Served) -> Iterator[Lease | None]:
        seat = self._pool.find(served.ref)
        engine = seat.serving.engine if seat is not None else None
        if engine is None:
            yield None
            return
        with engine.busy() as lease:
            yield lease

    def degraded(self, served: Served) -> tuple[str, ...]:
        seat = self._pool.find(served.ref)
        if seat is None:
            return ()
        snapshot = seat.serving.snapshot
        codes: list[str] = []
        if snapshot.survey is not None and snapshot.survey.gpu_unused() is not None:
            codes.append("cpu_fallback")
        codes += [code for code in differences.codes(snapshot) if code not in codes]
        if self._library.settings.engine.accept_cpu and "cpu_fallback" in codes:
            codes.remove("cpu_fallback")
        if self._slowed(self._pressure(seat)):
            codes.append("throttled")
        return tuple(codes)

    def _pressure(self, seat: Seat | None) -> Pressure:
        """Heat, as it counts for this model."""
        heat = self._monitor.snapshot
        places = places_of(seat.serving.snapshot, heat.gpus) if seat is not None else ()
        return pressure_on(heat, places)

    def _slowed(self, heat: Pressure) -> bool:
        """The state may outlive the slowness by `dwell`; an answer at usual speed is not less than asked."""
        return heat.thermal == "throttled" and heat.factor < self._library.settings.governor.slow

    def finished(self, served: Served, outcome: Outcome) -> None:
        seat, speed = self._pool.find(served.ref), outcome.tokens_per_second
        if seat is None or not outcome.ok or speed is None:
            return
        if seat.serving.engine is not None:
            seat.serving.engine.observe_speed(speed)
        plan = seat.serving.snapshot.plan
        if plan is None or (outcome.tokens_out or 0) < SHORTEST_SPEED_SAMPLE or self._others_run(seat):
            return
        tokens = (outcome.tokens_in or 0) + (outcome.tokens_out or 0)
        power = self._monitor.snapshot.power
        key = speed_key(
            served.ref, plan_key(plan), power, streams=outcome.streams or outcome.running, tokens=tokens
        )
        places = places_of(seat.serving.snapshot, self._monitor.snapshot.gpus)
        self._monitor.observe_speed(key, speed, places or self._everywhere())
        if self._learner is not None and not self.degraded(served):
            self._learner.learn(plan, outcome, self.conditions(served))

    def _everywhere(self) -> frozenset[str]:
        return frozenset(self._monitor.snapshot.devices) or frozenset({CPU})

    def _others_run(self, seat: Seat) -> bool:
        """Another model works beside it: its speed now says nothing of its own."""
        return any(other.queue.snapshot.running for other in self._pool if other is not seat)

    def conditions(self, served: Served) -> Conditions:
        seat = self._pool.find(served.ref)
        snapshot = seat.serving.snapshot if seat is not None else ServingSnapshot()
        now = conditions_of(self._pressure(seat), self._monitor.snapshot, snapshot.plan)
        return replace(now, places=tuple(sorted(places_of(snapshot, self._monitor.snapshot.gpus))))

    def models(self) -> Sequence[Served]:
        """What answers now: the default, what is loaded or may be, and those that a remote is configured
        for."""
        found: dict[str, Served] = {}
        for seat in self._resident(self._pool.default):
            found.setdefault(seat.ref.ref, _served(seat.ref, here=True))
        if self._library.settings.models.on_demand and not self._pool.halted:
            for ref in self._here.models():
                found.setdefault(ref.ref, _served(ref, here=True))
        for remote in self._library.settings.remotes:
            for name in remote.models:
                with contextlib.suppress(UnknownModel):
                    ref = self._library.catalog.resolve(name, self._library.settings.aliases)
                    found.setdefault(ref.ref, _served(ref, here=False))
        return list(found.values())


def _ctx(snapshot: ServingSnapshot) -> int | None:
    if snapshot.engine is not None and snapshot.engine.ctx is not None:
        return snapshot.engine.ctx
    return snapshot.plan.ctx if snapshot.plan is not None else None


def _with_served(error: UnknownModel, default: Seat | None) -> UnknownModel:
    """The error, and the name that would work now."""
    served = f"Served now: {default.ref.ref}." if default is not None else None
    hint = " ".join(part for part in (served, error.hint) if part)
    return UnknownModel(error.message, cause=error.cause, hint=hint)


def _served(ref: ModelRef, *, here: bool) -> Served:
    return Served(ref.id, ref.ref, tuple(ref.model.use), here)
