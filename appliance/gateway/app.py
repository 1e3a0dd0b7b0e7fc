"""The aiohttp application of the gateway."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Handler

from appliance.errors import ApplianceError
from appliance.gateway import data, shapes
from appliance.gateway.access import Caller, check_host, check_json, check_origin
from appliance.gateway.course import Course
from appliance.gateway.data import GATE
from appliance.gateway.gate import Gate
from appliance.gateway.limits import Limits
from appliance.gateway.ports import Ports

log = logging.getLogger("appliance.gateway")
_NOBODY = Caller("nobody", unknown_user=True)


def make_app(
    ports: Ports, *, limits: Limits | None = None, control: Iterable[web.AbstractRouteDef] = ()
) -> web.Application:
    """The whole HTTP edge: the data plane over `ports`, and the `control` routes (`/api`) of the daemon.

    Host and Origin are checked for every route. Errors of the data plane get OpenAI's shape; `/api` makes
    its own errors and checks its own token.
    """
    limits = limits or Limits()
    app = web.Application(middlewares=[_door, _data_errors], client_max_size=limits.body_bytes)
    gate = Gate(ports, limits)
    app[GATE] = gate
    app.cleanup_ctx.append(gate.running)
    app.on_shutdown.append(_shut_down)
    app.add_routes(data.routes())
    app.add_routes(control)
    return app


def make_runner(app: web.Application, *, shutdown_timeout_s: float = 5.0) -> web.AppRunner:
    """A runner that cancels a handler as soon as its client has gone: that is what frees the slot.

    `shutdown_timeout_s` must be longer than `Limits.grace_s`: it is when running replies are cut off.
    """
    return web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=shutdown_timeout_s,
        keepalive_timeout=75.0,
    )


async def _shut_down(app: web.Application) -> None:
    """aiohttp calls it when nothing new is accepted, and then waits for what runs before it cuts it off."""
    app[GATE].shut_down()


@web.middleware
async def _door(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Host, Origin and content type, before anything else is read."""
    host = request.headers.get("Host")
    try:
        check_host(host, request.app[GATE].host.settings().server.allowed_hosts)
        check_origin(request.headers.get("Origin"), host)
        if not request.path.startswith("/api/") or request.can_read_body:
            check_json(request.content_type, request.method)
    except ApplianceError as error:
        return _shaped(request, error)
    return await handler(request)


@web.middleware
async def _data_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors that belong to no inference request: unknown routes, lists, receipts, other callers."""
    if request.path.startswith("/api/"):
        return await handler(request)
    try:
        return await handler(request)
    except (ApplianceError, web.HTTPException) as error:
        if isinstance(error, web.HTTPException) and error.status < 400:
            raise
        return _shaped(request, error)
    except Exception as error:
        log.error("%s failed", request.path, exc_info=error)
        return _shaped(request, error)


def _shaped(request: web.Request, error: Exception) -> web.Response:
    course = Course(path=request.path, lane="interactive", caller=_NOBODY)
    problem = shapes.problem_of(error, "reject.unavailable")
    course.refused(problem.reason)
    return shapes.response(problem, course.headers(), course.appliance())
