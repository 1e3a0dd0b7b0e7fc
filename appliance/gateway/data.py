"""The handlers of the data plane, `/v1` and `/batch/v1`."""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from appliance.errors import ApplianceError, Rejected, UnknownModel
from appliance.gateway import ask as asking
from appliance.gateway import shapes
from appliance.gateway.access import Caller, caller_of, unreadable
from appliance.gateway.ask import Ask
from appliance.gateway.chunks import dumps
from appliance.gateway.closing import Stopping
from appliance.gateway.course import Course
from appliance.gateway.downstream import ClientGone, Downstream
from appliance.gateway.failures import UpstreamRefused
from appliance.gateway.gate import Gate
from appliance.gateway.journey import Journey
from appliance.gateway.ports import Served
from appliance.gateway.shapes import Problem, problem_of
from appliance.gateway.sinks import PlainSink, StreamSink
from appliance.routing import Kind
from appliance.text import clean_line
from appliance.units import size

log = logging.getLogger("appliance.gateway")
GATE = web.AppKey("gate", Gate)
_NAME_SHOWN = 80
"""Characters of an unknown model name that an error repeats."""
_KINDS: dict[str, Kind] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completion",
    "/v1/embeddings": "embedding",
}


def routes() -> list[web.AbstractRouteDef]:
    """All routes of the data plane."""
    made: list[web.AbstractRouteDef] = [web.get("/health", health), web.get("/metrics", metrics)]
    for prefix in ("", "/batch"):
        made += [web.post(prefix + path, infer) for path in _KINDS]
        made += [
            web.get(f"{prefix}/v1/models", models),
            web.get(f"{prefix}/v1/models/{{name:.+}}", model),
            web.get(f"{prefix}/v1/receipts/{{request_id}}", receipt),
        ]
    return made


async def health(request: web.Request) -> web.Response:
    """200 when a request would be served, else 503 with the state."""
    gate = request.app[GATE]
    state = {**gate.host.health(), **({"status": "stopping"} if gate.closing.begun else {})}
    return web.json_response(state, status=200 if state.get("status") == "ok" else 503)


async def metrics(request: web.Request) -> web.Response:
    """Prometheus."""
    caller_of(request)
    gate = request.app[GATE]
    for served in gate.local.models():
        admission = gate.local.admission(served) if served.here else None
        if admission is not None:
            gate.metrics.queue(served.ref, admission.snapshot)
    return web.Response(
        body=gate.metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    )


async def models(request: web.Request) -> web.Response:
    """OpenAI's list: names that a request may use now, so that a script which takes one gets an answer."""
    caller_of(request)
    gate = request.app[GATE]
    listed = [_model(served.ref) for served in gate.local.models() if gate.answers(served)]
    return web.json_response({"object": "list", "data": listed})


async def model(request: web.Request) -> web.Response:
    """One model, under any name that requests may use."""
    caller_of(request)
    served = _resolved(request.app[GATE], request.match_info["name"])
    return web.json_response(_model(served.ref))


async def receipt(request: web.Request) -> web.Response:
    """What happened to one request of this caller."""
    caller = caller_of(request)
    found = request.app[GATE].receipts.read(request.match_info["request_id"], caller)
    if found is None:
        raise Rejected(
            "There is no receipt of that request.",
            reason="reject.not_found",
            http_status=404,
            hint="Receipts are kept for the last requests only, and for their own caller.",
        )
    return web.json_response(found)


async def infer(request: web.Request) -> web.StreamResponse:
    """Chat, completions, embeddings: one course from arrival to journal."""
    gate = request.app[GATE]
    batch = request.path.startswith("/batch/")
    path = request.path.removeprefix("/batch")
    course = _course(request, path, batch, caller_of(request))
    gate.receipts.keep(course)
    gate.began()
    try:
        return await _answered(request, gate, course, batch)
    except (asyncio.CancelledError, ClientGone) as gone:
        if course.status is None or course.delivered:  # else it had failed before the client went
            course.status = 200 if course.delivered else 499
        if isinstance(gone, ClientGone):
            if request.transport is not None:
                request.transport.abort()  # a client that is only slow must not read on as if all were well
            return web.Response(status=499)  # nobody is there to read it
        raise
    finally:
        course.ended_at = time.perf_counter()
        gate.ended(course)


async def _answered(request: web.Request, gate: Gate, course: Course, batch: bool) -> web.StreamResponse:
    try:
        ask = await _understood(request, gate, course, batch)
    except Exception as error:  # noqa: BLE001 - whatever it was, the client gets an OpenAI error
        return _refusal(course, _problem(course, error))
    if ask.stream:
        return await _streamed(request, gate, ask, course)
    sink = PlainSink(course, gate.limits)
    try:
        async with gate.closing.bounds():
            await Journey(gate, ask, course, sink).run()
    except ClientGone:
        raise
    except Exception as error:  # noqa: BLE001
        return _refusal(course, _problem(course, error))
    course.status = 200
    return web.Response(body=dumps(sink.reply), content_type="application/json", headers=course.headers())


async def _streamed(request: web.Request, gate: Gate, ask: Ask, course: Course) -> web.StreamResponse:
    async with Downstream(request, course, gate.limits) as down:
        try:
            async with gate.closing.bounds():
                await Journey(gate, ask, course, StreamSink(down, ask, course)).run()
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001
            begun = down.committed and course.first_at is not None
            problem = _problem(course, error, begun=begun)
            if await down.unsettled():
                return _refusal(course, problem)
            course.status = problem.status
            return await down.fail(problem)
        course.status = 200
        return await down.close()


async def _understood(request: web.Request, gate: Gate, course: Course, batch: bool) -> Ask:
    gate.closing.check()
    wish = asking.wish_of(request.headers.get("X-Appliance-Route"))
    course.lane = asking.lane_of(request.headers.get("X-Appliance-Priority"), batch)
    body = asking.parse(await _body(request, gate))
    name = asking.model_name(body)
    course.asked_model = None if name is None else clean_line(name, 200)
    served = _resolved(gate, name)
    course.served = served
    kind = _KINDS[course.path]
    if kind == "embedding" and "embedding" not in served.use:
        raise _not_for_embeddings(gate, served.id)
    return asking.understand(
        course.path,
        kind,
        body,
        served,
        course.caller,
        wish=wish,
        lane=course.lane,
        no_store=asking.no_store_of(request.headers.getall("Cache-Control", ())),
    )


def _resolved(gate: Gate, name: str | None) -> Served:
    """Raises UnknownModel, which repeats no more of a client's words than a name can need."""
    try:
        return gate.local.resolve(name)
    except UnknownModel as error:
        if name is None or len(name) <= _NAME_SHOWN:
            raise
        raise UnknownModel(f"There is no model {clean_line(name, _NAME_SHOWN)}.", hint=error.hint) from None


async def _body(request: web.Request, gate: Gate) -> bytes:
    try:
        async with asyncio.timeout(gate.limits.body_read_s):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Rejected(
            f"The body is larger than the appliance takes, {size(gate.limits.body_bytes)}.",
            reason="reject.unsupported", http_status=413,
        ) from None  # fmt: skip
    except web.RequestPayloadError:
        raise unreadable(request) from None
    except TimeoutError:
        raise Rejected(
            "The body did not arrive in time.", reason="reject.unsupported", http_status=408
        ) from None


def _not_for_embeddings(gate: Gate, name: str) -> Rejected:
    able = [
        served.ref for served in gate.local.models() if "embedding" in served.use and gate.answers(served)
    ]
    hint = "These can: " + ", ".join(able) + "." if able else "No installed model is marked for embeddings."
    return Rejected(
        f"{name} is not made for embeddings.", reason="reject.unsupported", http_status=400, hint=hint
    )


def _course(request: web.Request, path: str, batch: bool, caller: Caller) -> Course:
    own = request.headers.get("X-Request-Id")
    agent = request.headers.get("User-Agent")
    return Course(
        path=path,
        lane="batch" if batch else "interactive",
        caller=caller,
        client_request_id=None if own is None else clean_line(own, 200),
        user_agent=None if agent is None else clean_line(agent, 120),
    )


def _problem(course: Course, error: Exception, *, begun: bool = False) -> Problem:
    """The error for the client; the course learns it, and a fault of ours goes to the log.

    `begun`: the client has seen a part of the reply, so the side that gave it stays the truth.
    """
    problem = problem_of(error, course.reason)
    expected = isinstance(error, (ApplianceError, web.HTTPException))
    if not expected:
        log.error("request %s failed", course.request_id, exc_info=error)
        problem = problem_of(error, "reject.unavailable")
    nobody = isinstance(error, (Rejected, UnknownModel)) or not expected or course.route == "none"
    if begun and isinstance(error, Stopping):
        return problem
    if nobody or (isinstance(error, UpstreamRefused) and problem.reason.startswith("reject.")):
        course.refused(problem.reason)
    return problem


def _refusal(course: Course, problem: Problem) -> web.Response:
    course.status = problem.status
    return shapes.response(problem, course.headers(), course.appliance())


def _model(ref: str) -> dict[str, object]:
    return {"id": ref, "object": "model", "created": 0, "owned_by": "appliance"}
