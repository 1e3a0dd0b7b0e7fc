"""The control plane takes the daemon's token, JSON, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from appliance.errors import DoesNotFit
from appliance.gateway.control import routes

TOKEN = "t0ken-for-the-tests"


class Scripted:
    """Answers what it was asked; `plan` fails."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.changed_times = 2
        self.moving = False

    def __getattr__(self, name: str) -> Any:
        async def answer(*arguments: Any) -> dict[str, Any]:
            self.asked.append((name, arguments))
            if name == "plan":
                raise DoesNotFit("It does not fit.", cause="Too large.", hint="Take a smaller one.")
            if name == "journal":
                raise RuntimeError("secret-detail")
            return {"did": name}

        return answer

    async def changed(self, timeout_s: float) -> bool:
        self.changed_times -= 1
        return self.changed_times >= 0

    async def status(self) -> dict[str, Any]:
        self.asked.append(("status", ()))
        return {"did": "status"} | ({"left": self.changed_times} if self.moving else {})


@pytest.fixture
async def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
async def url(scripted: Scripted) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(routes(scripted, TOKEN))
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def call(
    url: str,
    method: str,
    path: str,
    *,
    token: str | None = TOKEN,
    more_headers: Mapping[str, str] | None = None,
    **more: Any,
) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    headers |= more_headers or {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url + path, headers=headers, **more) as response,
    ):
        document: dict[str, Any] = await response.json()
        return response.status, document


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1]])
async def test_without_the_token_nothing_is_asked(url: str, scripted: Scripted, token: str | None) -> None:
    for method, path in (("GET", "/api/status"), ("POST", "/api/shutdown"), ("GET", "/api/events")):
        status, document = await call(url, method, path, token=token)
        assert status == 401
        assert document["error"]["hint"]
    assert scripted.asked == []


async def test_a_token_that_is_no_ascii_is_a_wrong_token(url: str, scripted: Scripted) -> None:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /api/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xe9\xe9\r\n\r\n")
    assert b" 401 " in await reader.readline()
    writer.close()
    assert scripted.asked == []


async def test_a_body_in_a_false_encoding_is_a_400(url: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip", "Content-Length": "2"}
    status, document = await call(url, "POST", "/api/plan", data=b"{}", more_headers=headers)
    assert status == 400
    assert document["error"]["hint"]


@pytest.mark.parametrize(
    ("method", "path", "body", "asked"),
    [
        ("GET", "/api/status", None, ("status", ())),
        ("POST", "/api/models/a:Q4_1/load", {"ctx": 5}, ("load", ("a:Q4_1", {"ctx": 5}))),
        ("POST", "/api/models/a/verify", None, ("verify", ("a",))),
        ("POST", "/api/models/a/repair", None, ("repair", ("a",))),
        ("DELETE", "/api/models/a", None, ("remove", ("a", False))),
        ("DELETE", "/api/models/a?force=1", None, ("remove", ("a", True))),
        ("POST", "/api/downloads", {"model": "a"}, ("download", ({"model": "a"},))),
        ("POST", "/api/downloads/7/pause", None, ("pause", ("7",))),
        ("POST", "/api/downloads/7/resume", None, ("resume", ("7",))),
        ("DELETE", "/api/downloads/7", None, ("cancel", ("7",))),
        ("POST", "/api/engine/restart", None, ("engine", ("restart",))),
        (
            "PATCH",
            "/api/settings",
            {"key": "a.b", "value": "c"},
            ("set_setting", ({"key": "a.b", "value": "c"},)),
        ),
        ("GET", "/api/logs?after=5&limit=9", None, ("logs", (5, 9, "", False))),
        ("GET", "/api/logs?limit=9&newest=1&model=a:Q4_1", None, ("logs", (0, 9, "a:Q4_1", True))),
        ("GET", "/api/journal/events?limit=9&after=5", None, ("journal_events", (9, 5))),
        ("GET", "/api/history", None, ("history", (3_600, None, None))),
        ("GET", "/api/history?seconds=60&step=1&device=cpu", None, ("history", (60, 1, "cpu"))),
        ("GET", "/api/timeline?limit=5", None, ("timeline", (3_600, None, 5))),
        ("GET", "/api/timeline?after=17.25", None, ("timeline", (3_600, 17.25, 1_000))),
        ("POST", "/api/remotes/lab/test", None, ("test_remote", ("lab",))),
    ],
)
async def test_each_route_asks_for_what_it_names(
    url: str, scripted: Scripted, method: str, path: str, body: Any, asked: tuple[str, tuple[Any, ...]]
) -> None:
    status, document = await call(url, method, path, **({"json": body} if body is not None else {}))
    assert (status, document) == (200, {"did": asked[0]})
    assert scripted.asked == [asked]


@pytest.mark.parametrize(
    "path",
    [
        "/api/logs?after=x",
        "/api/logs?after=²",
        "/api/logs?limit=-1",
        "/api/history?step=5",
        "/api/history?from=abc",
        "/api/history?seconds=abc",
        "/api/history?seconds=-1",
        "/api/history?seconds=",
        "/api/history?seconds=60&seconds=3600",
        "/api/history?device=cpu&device=machine",
        "/api/timeline?step=1",
        "/api/timeline?after=-1",
    ],
)
async def test_a_number_that_is_none_is_refused(url: str, scripted: Scripted, path: str) -> None:
    assert (await call(url, "GET", path))[0] == 400
    assert (await call(url, "DELETE", "/api/models/a?force=yes"))[0] == 400
    assert scripted.asked == []


async def test_a_name_of_the_query_that_is_not_known_is_told_with_those_that_are(url: str) -> None:
    _, document = await call(url, "GET", "/api/history?from=abc")
    assert document["error"]["message"] == "from is not known here."
    assert document["error"]["hint"] == "Known are seconds, step, device."


async def test_an_error_keeps_its_words_and_status(url: str) -> None:
    status, document = await call(url, "POST", "/api/plan", json={})
    assert status == 409
    error = DoesNotFit("It does not fit.", cause="Too large.", hint="Take a smaller one.")
    assert document["error"] == error.to_json()
    assert document["error"]["code"] == "does_not_fit"


async def test_an_unexpected_failure_tells_no_detail(url: str) -> None:
    status, document = await call(url, "GET", "/api/journal")
    assert status == 500
    assert "secret-detail" not in json.dumps(document)


@pytest.mark.parametrize("body", [b"{", b"[1]", b"null", b'"x"'])
async def test_a_body_that_is_no_object_is_refused(url: str, scripted: Scripted, body: bytes) -> None:
    for content_type, data in (("application/json", body), ("text/plain", b"{}")):
        headers = {"Content-Type": content_type, "Authorization": f"Bearer {TOKEN}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{url}/api/downloads", data=data) as response,
        ):
            assert response.status == 400
    assert scripted.asked == []


@pytest.mark.parametrize(
    ("moving", "expected"),
    [(True, ["event: snapshot", "event: status", "event: status"]), (False, ["event: snapshot"])],
)
async def test_events_begin_with_a_snapshot_and_tell_only_what_changed(
    url: str, scripted: Scripted, moving: bool, expected: list[str]
) -> None:
    scripted.moving = moving
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{url}/api/events") as response,
    ):
        assert response.content_type == "text/event-stream"
        text = (await response.read()).decode()
    assert [block.split("\n")[0] for block in text.strip().split("\n\n")] == expected
