"""The control plane `/api`: the daemon's commands and snapshots, for the holder of its token only."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from appliance.errors import ApplianceError, UsageError
from appliance.gateway.access import unreadable
from appliance.units import size

log = logging.getLogger("appliance.control")
MAX_BODY = 1 << 20
EVENT_PERIOD_S = 1.0
"""Queue and sensors move without a signal, so the document is looked at this often."""
PAUSE_S = 0.2
PING_S = 15.0
Document = Mapping[str, Any]


class Control(Protocol):
    """What the control plane can ask of the daemon. Every answer is a JSON document."""

    async def status(self) -> Document: ...
    async def changed(self, timeout_s: float) -> bool: ...
    async def models(self) -> Document: ...
    async def load(self, ref: str, body: Document) -> Document: ...
    async def verify(self, ref: str) -> Document: ...
    async def remove(self, ref: str) -> Document: ...
    async def downloads(self) -> Document: ...
    async def download(self, body: Document) -> Document: ...
    async def cancel(self, key: str) -> Document: ...
    async def plan(self, body: Document) -> Document: ...
    async def engines(self) -> Document: ...
    async def engine(self, action: str) -> Document: ...
    async def remotes(self) -> Document: ...
    async def add_remote(self, body: Document) -> Document: ...
    async def remove_remote(self, name: str) -> Document: ...
    async def test_remote(self, name: str) -> Document: ...
    async def journal(self, limit: int) -> Document: ...
    async def settings(self) -> Document: ...
    async def set_setting(self, body: Document) -> Document: ...
    async def logs(self, after: int, limit: int) -> Document: ...
    async def shutdown(self) -> Document: ...


def routes(control: Control, token: str) -> list[web.RouteDef]:
    """The routes of `/api`, each behind the token."""
    answer = _Answers(token).answer

    def get(path: str, call: Callable[[web.Request], Awaitable[Document]]) -> web.RouteDef:
        return web.get(f"/api{path}", answer(call))

    def post(path: str, call: Callable[[web.Request], Awaitable[Document]]) -> web.RouteDef:
        return web.post(f"/api{path}", answer(call))

    def delete(path: str, call: Callable[[web.Request], Awaitable[Document]]) -> web.RouteDef:
        return web.delete(f"/api{path}", answer(call))

    return [
        get("/status", lambda _: control.status()),
        web.get("/api/events", _events(control, token)),
        get("/models", lambda _: control.models()),
        post("/models/{ref}/load", lambda r: _with_body(r, lambda body: control.load(_part(r, "ref"), body))),
        post("/models/{ref}/verify", lambda r: control.verify(_part(r, "ref"))),
        delete("/models/{ref}", lambda r: control.remove(_part(r, "ref"))),
        get("/downloads", lambda _: control.downloads()),
        post("/downloads", lambda r: _with_body(r, control.download)),
        delete("/downloads/{id}", lambda r: control.cancel(_part(r, "id"))),
        post("/plan", lambda r: _with_body(r, control.plan)),
        get("/engines", lambda _: control.engines()),
        post("/engine/{action}", lambda r: control.engine(_part(r, "action"))),
        get("/remotes", lambda _: control.remotes()),
        post("/remotes", lambda r: _with_body(r, control.add_remote)),
        delete("/remotes/{name}", lambda r: control.remove_remote(_part(r, "name"))),
        post("/remotes/{name}/test", lambda r: control.test_remote(_part(r, "name"))),
        get("/journal", lambda r: control.journal(_number(r, "limit", 50))),
        get("/settings", lambda _: control.settings()),
        web.patch("/api/settings", answer(lambda r: _with_body(r, control.set_setting))),
        get("/logs", lambda r: control.logs(_number(r, "after", 0), _number(r, "limit", 500))),
        post("/shutdown", lambda _: control.shutdown()),
    ]


class _Answers:
    """Checks the token and turns documents and errors into responses."""

    def __init__(self, token: str) -> None:
        self._token = token

    def answer(
        self, call: Callable[[web.Request], Awaitable[Document]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            if not is_allowed(request, self._token):
                return _denied()
            try:
                return web.json_response(dict(await call(request)))
            except ApplianceError as error:
                return web.json_response({"error": error.to_json()}, status=_status(error))
            except Exception:
                log.exception("a control request failed unexpectedly")
                unexpected = ApplianceError(
                    "The daemon failed on this request.", hint="Its log has the details."
                )
                return web.json_response({"error": unexpected.to_json()}, status=500)

        return handle


def is_allowed(request: web.Request, token: str) -> bool:
    """True for the holder of `daemon.json`'s token."""
    given = request.headers.get("Authorization", "")
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), f"Bearer {token}".encode())


def _denied() -> web.Response:
    error = {
        "code": "control_token",
        "message": "The control plane takes only the daemon's token.",
        "cause": None,
        "hint": "Use the `appliance` command as the user who started the daemon.",
    }
    return web.json_response({"error": error}, status=401)


def _status(error: ApplianceError) -> int:
    return getattr(error, "http_status", None) or error.status


def _events(control: Control, token: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """First a snapshot, then one whenever the document differs from the last one that was sent."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if not is_allowed(request, token):
            return _denied()
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        shown, event, silent_since = None, "snapshot", time.monotonic()
        try:
            while True:
                document = await control.status()
                if document != shown:
                    await _send(response, event, document)
                    shown, event, silent_since = document, "status", time.monotonic()
                elif time.monotonic() - silent_since > PING_S:
                    await response.write(b": ping\n\n")
                    silent_since = time.monotonic()
                if not await control.changed(EVENT_PERIOD_S):
                    return response
                await asyncio.sleep(PAUSE_S)  # a burst of changes is one event
        except ConnectionError:
            return response

    return handle


async def _send(response: web.StreamResponse, event: str, document: Document) -> None:
    data = json.dumps(document, ensure_ascii=False)
    await response.write(f"event: {event}\ndata: {data}\n\n".encode())


async def _with_body(request: web.Request, call: Callable[[Document], Awaitable[Document]]) -> Document:
    if request.content_type != "application/json":
        raise UsageError("The control plane takes JSON.", hint="Send Content-Type: application/json.")
    raw = b"" if request.can_read_body else b"{}"
    try:
        while not request.content.at_eof() and len(raw) <= MAX_BODY:
            raw += await request.content.read(MAX_BODY + 1 - len(raw))
    except web.RequestPayloadError:
        raise unreadable(request) from None
    if len(raw) > MAX_BODY:
        raise UsageError(f"The request is larger than {size(MAX_BODY)}.")
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        raise UsageError("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise UsageError("The body is not a JSON object.")
    return await call(body)


def _part(request: web.Request, name: str) -> str:
    return request.match_info[name]


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not text.isdigit():
        raise UsageError(f"{name} is not a number.")
    return int(text)
