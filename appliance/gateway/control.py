"""The control plane `/api`: the daemon's commands and snapshots, for the holder of its token only."""

from __future__ import annotations

from collections.abc import Awaitable

from aiohttp import web

from appliance.gateway.control_door import Call, Door, moment, number, one_of, only, switch, with_body
from appliance.gateway.control_events import events
from appliance.gateway.control_ports import Control, Document

__all__ = ["Control", "routes"]


def routes(control: Control, token: str) -> list[web.RouteDef]:
    """The routes of `/api`, each behind the token."""
    door = Door(token)
    made = _Routes(door)
    _house(made, control)
    _models(made, control)
    _downloads(made, control)
    _engine(made, control)
    _remotes(made, control)
    return [web.get("/api/events", events(control, door)), *made.found]


class _Routes:
    """Collects them, all behind one door."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.found: list[web.RouteDef] = []

    def add(self, method: str, path: str, call: Call) -> None:
        make = {"GET": web.get, "POST": web.post, "PATCH": web.patch, "DELETE": web.delete}[method]
        self.found.append(make(f"/api{path}", self._door.answer(call)))


def _house(made: _Routes, control: Control) -> None:
    made.add("GET", "/status", lambda _: control.status())
    made.add("GET", "/journal", lambda r: control.journal(number(r, "limit", 50)))
    made.add(
        "GET",
        "/journal/events",
        lambda r: control.journal_events(number(r, "limit", 50), number(r, "after", 0)),
    )
    made.add("GET", "/history", lambda r: _history(control, r))
    made.add("GET", "/timeline", lambda r: _timeline(control, r))
    made.add("GET", "/settings", lambda _: control.settings())
    made.add("PATCH", "/settings", lambda r: with_body(r, control.set_setting))
    made.add("DELETE", "/prompts", lambda _: control.forget_prompts())
    made.add("POST", "/shutdown", lambda _: control.shutdown())


def _models(made: _Routes, control: Control) -> None:
    made.add("GET", "/models", lambda _: control.models())
    made.add("POST", "/models/{ref}/load", lambda r: with_body(r, lambda body: control.load(_ref(r), body)))
    made.add("POST", "/models/{ref}/unload", lambda r: control.unload(_ref(r)))
    made.add("POST", "/models/{ref}/restart", lambda r: control.restart(_ref(r)))
    made.add("POST", "/models/{ref}/pin", lambda r: with_body(r, lambda body: control.pin(_ref(r), body)))
    made.add("POST", "/models/{ref}/verify", lambda r: control.verify(_ref(r)))
    made.add("POST", "/models/{ref}/repair", lambda r: control.repair(_ref(r)))
    made.add("DELETE", "/models/{ref}", lambda r: control.remove(_ref(r), switch(r, "force")))
    made.add("POST", "/plan", lambda r: with_body(r, control.plan))


def _downloads(made: _Routes, control: Control) -> None:
    made.add("GET", "/downloads", lambda _: control.downloads())
    made.add("POST", "/downloads", lambda r: with_body(r, control.download))
    made.add("POST", "/downloads/{id}/pause", lambda r: control.pause(r.match_info["id"]))
    made.add("POST", "/downloads/{id}/resume", lambda r: control.resume(r.match_info["id"]))
    made.add("DELETE", "/downloads/{id}", lambda r: control.cancel(r.match_info["id"]))


def _engine(made: _Routes, control: Control) -> None:
    made.add("GET", "/engines", lambda _: control.engines())
    made.add("GET", "/engines/install", lambda _: control.engine_install())
    made.add("POST", "/engines/install", lambda r: with_body(r, control.install_engine))
    made.add("DELETE", "/engines/install", lambda _: control.cancel_engine_install())
    made.add("POST", "/engines/use", lambda r: with_body(r, control.use_engine))
    made.add("POST", "/engines/rollback", lambda _: control.rollback_engine())
    made.add("DELETE", "/engines/{name}", lambda r: control.remove_engine(_name(r), switch(r, "forget")))
    made.add("POST", "/engine/{action}", lambda r: control.engine(r.match_info["action"]))
    made.add("GET", "/logs", lambda r: _logs(control, r))


def _logs(control: Control, r: web.Request) -> Awaitable[Document]:
    after, limit = number(r, "after", 0), number(r, "limit", 500)
    return control.logs(after, limit, r.query.get("model", ""), switch(r, "newest"))


def _history(control: Control, r: web.Request) -> Awaitable[Document]:
    only(r, "seconds", "step", "device")
    step = {"auto": None, "1": 1, "60": 60}[one_of(r, "step", ("auto", "1", "60"))]
    return control.history(number(r, "seconds", 3_600), step, r.query.get("device") or None)


def _timeline(control: Control, r: web.Request) -> Awaitable[Document]:
    only(r, "seconds", "after", "limit")
    return control.timeline(number(r, "seconds", 3_600), moment(r, "after"), number(r, "limit", 1_000))


def _remotes(made: _Routes, control: Control) -> None:
    made.add("GET", "/remotes", lambda _: control.remotes())
    made.add("POST", "/remotes", lambda r: with_body(r, control.add_remote))
    made.add("DELETE", "/remotes/{name}", lambda r: control.remove_remote(_name(r)))
    made.add("POST", "/remotes/{name}/test", lambda r: control.test_remote(_name(r)))


def _ref(request: web.Request) -> str:
    return request.match_info["ref"]


def _name(request: web.Request) -> str:
    return request.match_info["name"]
