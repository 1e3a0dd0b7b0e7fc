"""One inference request from the decision to its end: decide, wait for a slot, open a side, relay, and change
sides only while nothing of a reply has been seen."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import aiohttp

from appliance.engines import Endpoint
from appliance.errors import ApplianceError, EngineUnavailable, Rejected
from appliance.gateway import ask as asking
from appliance.gateway import comeback, shapes, upstream
from appliance.gateway import filter as fields
from appliance.gateway.admission import Place
from appliance.gateway.ask import Ask
from appliance.gateway.badfield import BadField
from appliance.gateway.choices import Choices
from appliance.gateway.course import Course
from appliance.gateway.failures import UpstreamError, UpstreamFailed, UpstreamRefused
from appliance.gateway.gate import Gate
from appliance.gateway.held import held, unheard
from appliance.gateway.ports import RemoteTarget, ReportedOutcome
from appliance.gateway.pump import Pump, Sink
from appliance.gateway.secluded import secluded
from appliance.routing import FAILED_NOW, Decision, Side, View, after_failure, heat

_MAX_MOVES = 8
"""Decisions for one request: local, each of a few remotes, and back."""
_ASK_AGAIN_S = 1.0
"""A request that waits on asks again at least so far apart."""
_OUR_FAULT = (401, 403, 404)
"""A remote's answers about key, address or model name: the appliance's settings, not the client's request."""
_REPORTED: dict[str, ReportedOutcome] = {
    "refused": "refused",
    "timeout": "timeout",
    "reset": "reset",
    "4xx": "4xx",
}


class Journey:
    """One request under way."""

    def __init__(self, gate: Gate, ask: Ask, course: Course, sink: Sink) -> None:
        self._gate = gate
        self._ask = ask
        self._course = course
        self._sink = sink
        self._choices = Choices(gate, ask, course.request_id)
        self._failed: set[str] = set()
        """Sides that failed for this request, `local` or `remote NAME`: none is asked twice."""
        self._wished_s: float | None = None
        """The last Retry-After of a side that failed."""

    async def run(self) -> None:
        """Until the reply is complete. Raises Rejected, UpstreamRefused, UpstreamFailed."""
        decision = self._choices.first()
        last: ApplianceError | None = None
        for _ in range(_MAX_MOVES):
            if decision.target == "reject":
                raise self._rejection(decision, last)
            self._course.waits(decision.reason)
            try:
                go = self._locally if decision.target == "local" else self._away
                moved = await go(decision)
            except UpstreamFailed as failure:
                if failure.started or self._still_there(decision, failure):
                    raise
                self._wished_s = (
                    failure.retry_after_s if failure.retry_after_s is not None else self._wished_s
                )
                last, moved = failure, self._after(decision, failure.message)
            except _CannotTranslate as failure:
                last, moved = failure, self._after(decision, failure.message)
            except UpstreamRefused as refused:
                last, moved = refused, self._elsewhere(decision, refused)
            if moved is None:
                return
            decision = moved
        raise last or Rejected("No side answers.", reason="reject.unavailable", http_status=503)

    def _still_there(self, decision: Decision, failure: UpstreamFailed) -> bool:
        """An engine that answered, even nonsense, and still is ready: the prompt stays on this machine."""
        return (
            decision.target == "local"
            and failure.answered
            and self._gate.local.endpoint(self._ask.served) is not None
        )

    def _after(self, decision: Decision, cause: str) -> Decision:
        side: Side = "local" if decision.target == "local" else "remote"
        self._failed.add("local" if side == "local" else f"remote {decision.remote}")
        return self._choices.failed(self._left(), side, cause, decision.remote)

    def _left(self) -> View:
        """The machine now, without the sides that have failed for this request."""
        view = self._gate.view(self._ask.served, self._ask.features)
        if view.local and "local" in self._failed:
            view = replace(view, local=replace(view.local, state="failed"))
        remotes = (
            replace(r, up=False, detail=FAILED_NOW) if f"remote {r.name}" in self._failed else r
            for r in view.remotes
        )
        return replace(view, remotes=tuple(remotes))

    def _elsewhere(self, decision: Decision, refused: UpstreamRefused) -> Decision:
        """A 4xx never changes sides, but for a prompt that only fits the remote's context, and for a remote
        that refuses the appliance (its key, its name of the model) and not the request."""
        if decision.target == "remote" and refused.told.status in _OUR_FAULT:
            moved = self._after(decision, shapes.problem_of(refused, decision.reason).message)
            if moved.target != "reject":
                return moved
            raise refused
        tokens = refused.prompt_tokens
        if decision.target == "local" and refused.too_long and tokens is not None:
            moved = self._choices.refused(self._left(), tokens)
            if moved.target == "remote":
                return moved
        raise refused

    def _rejection(self, decision: Decision, last: ApplianceError | None) -> ApplianceError:
        self._course.refused(decision.reason)
        if isinstance(last, _CannotTranslate):
            return last
        if decision.reason == "reject.not_found":
            return NotServed(decision.detail, self._ask.served.id)
        wished = None if self._wished_s is None else min(120, max(1, math.ceil(self._wished_s)))
        return Rejected(
            decision.detail,
            reason=decision.reason,
            http_status=decision.status or 503,
            retry_after_s=decision.retry_after_s if wished is None else wished,
        )

    async def _locally(self, decision: Decision) -> Decision | None:
        """Answer here; None when it was done, else where to go after waiting too long."""
        with self._gate.local.wanted(self._ask.served):
            return await self._wanted_here(decision)

    async def _wanted_here(self, decision: Decision) -> Decision | None:
        ask, gate, course = self._ask, self._gate, self._course
        view = gate.local.view(ask.served)
        body = fields.for_local(
            ask.body, ask.kind, model=ask.served.ref, slots=view.slots if view and view.slots else None
        )
        admission = gate.local.admission(ask.served)
        if admission is None:
            raise UpstreamFailed("refused", "no engine serves this model now")
        with admission.enter(ask.features.lane) as place:
            moved = await self._wait(place, decision)
            course.queue_s = place.waited_s
            if moved is not None:
                return moved
            endpoint = gate.local.endpoint(ask.served) or await comeback.loaded(gate, ask.served, place)
            if place.stopped and (moved := self._choices.waited(place.waited_s)).target != "local":
                return moved
            if endpoint is None:
                raise UpstreamFailed("refused", "the engine is not ready")
            course.to_local(decision.reason, gate.local.degraded(ask.served))
            running = admission.snapshot.running
            try:
                await self._ask_engine(endpoint, body, place, running)
            except UpstreamFailed as failure:
                if not comeback.looks_dead(failure) or self._may_leave(failure):
                    raise
                fresh = await comeback.restarted(gate, ask.served, endpoint, place)
                if fresh is None:
                    raise
                await self._ask_engine(fresh, body, place, running)
        return None

    def _may_leave(self, failure: UpstreamFailed) -> bool:
        made = after_failure(self._ask.features, self._left(), "local", failure.message)
        return made.target == "remote"

    async def _ask_engine(self, endpoint: Endpoint, body: dict[str, Any], place: Place, running: int) -> None:
        """One try. Raises UpstreamFailed, UpstreamRefused."""
        ask, gate, course = self._ask, self._gate, self._course
        try:
            with secluded(gate, ask, course, endpoint) as more, held(gate.local, ask.served) as beat:
                worded = {**self._worded(body), **more}
                call = upstream.open_local(
                    gate.tcp, endpoint, ask.path, worded, course.request_id, gate.limits
                )
                await self._attempt(call, "local", beat)
            place.completed = True
        except EngineUnavailable as error:
            raise UpstreamFailed("refused", error.message) from None
        finally:
            place.completed = place.completed or course.delivered
            course.conditions = gate.local.conditions(ask.served)
            course.streams = max(place.streams, ask.n)  # each choice of one request is a stream of its own
            self._answered_here(endpoint, running, ok=place.completed)

    def _answered_here(self, endpoint: Endpoint, running: int, *, ok: bool) -> None:
        served, course, gate = self._ask.served, self._course, self._gate
        view = gate.local.view(served) if ok else None
        if view is not None:
            gate.speeds.observe_local(served.ref, course.sample(), factor=heat(view), incarnation=endpoint)
        gate.local.finished(served, course.outcome(running, ok=ok))

    async def _wait(self, place: Place, decision: Decision) -> Decision | None:
        limit = due = max(0.0, self._gate.host.settings().routing.max_wait)
        async with self._gate.closing.bounds(waits=True):
            while not await place.wait(max(0.0, due - place.waited_s)):
                if (moved := self._choices.waited(place.waited_s)).target != "local":
                    return moved
                if place.waited_s >= due:
                    due = place.waited_s + max(limit, _ASK_AGAIN_S)
        return None

    async def _away(self, decision: Decision) -> None:
        """Answer from a remote: when this returns, it was done."""
        ask, course = self._ask, self._course
        self._must_be_allowed()
        target = self._gate.remotes.target(decision.remote or "")
        try:
            translated = target.translate(ask.path, dict(ask.body), local_id=ask.served.ref)
        except ApplianceError as error:
            raise _CannotTranslate(error, target.name) from None
        course.to_remote(decision.reason, str(translated.get("model") or target.name))
        if decision.reason == "remote.loading":
            self._gate.local.missed(ask.served)
        call = upstream.open_remote(
            self._gate.tcp, target, ask.path, self._worded(translated), course.request_id
        )
        await self._reported(target, call)

    def _must_be_allowed(self) -> None:
        """The one door out of this machine. The router has decided; this holds even if it was wrong."""
        features, policy = self._ask.features, self._gate.host.settings().routing.policy
        if features.wish == "local" or features.keyless_unknown_user or policy == "local-only":
            raise Rejected(
                "This request may not leave the machine.", reason="reject.local_only", http_status=503
            )

    async def _reported(
        self, target: RemoteTarget, call: AbstractAsyncContextManager[aiohttp.ClientResponse]
    ) -> None:
        outcome: ReportedOutcome = "cancelled"
        wait: float | None = None
        try:
            await self._attempt(call, "remote")
            outcome = "ok"
        except UpstreamError as error:
            outcome = _REPORTED.get(error.outcome, "5xx")
            wait = error.retry_after_s
            raise
        finally:
            outcome = "ok" if self._course.delivered else outcome
            if outcome == "ok":
                self._gate.speeds.observe_remote(target.name, self._ask.served.ref, self._course.sample())
            target.report(outcome, retry_after_s=wait)

    def _worded(self, body: dict[str, Any]) -> dict[str, Any]:
        return body if self._ask.kind == "embedding" else asking.as_stream(body)

    async def _attempt(
        self,
        call: AbstractAsyncContextManager[aiohttp.ClientResponse],
        side: Side,
        beat: Callable[[], None] = unheard,
    ) -> None:
        """One side's answer into the sink; the connection is closed when this returns or raises."""
        self._course.upstream_at = time.perf_counter()
        try:
            async with asyncio.timeout(self._gate.limits.first_token_s) as clock, call as response:
                pump = self._pump(side, beat)
                if self._ask.kind == "embedding":
                    await pump.whole(response)
                else:
                    await pump.stream(response, clock)
        except TimeoutError:
            raise UpstreamFailed("timeout", "no token came in time") from None

    def _pump(self, side: Side, beat: Callable[[], None]) -> Pump:
        ask, limits = self._ask, self._gate.limits
        return Pump(self._sink, self._course, side, limits, choices=ask.choices, n=ask.n, beat=beat)


class NotServed(BadField):
    """A model of the catalog that no side serves now."""

    def __init__(self, message: str, model: str) -> None:
        super().__init__(message, "model", f"`appliance up {model}` serves it.")
        self.reason, self.http_status = "reject.not_found", 404


class _CannotTranslate(BadField):
    """A remote can't honour a field of this request."""

    def __init__(self, error: ApplianceError, remote: str) -> None:
        super().__init__(f"{remote}: {error.message}", str(getattr(error, "field", "")) or "body", error.hint)
