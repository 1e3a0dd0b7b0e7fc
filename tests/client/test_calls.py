"""Each call asks for what the control plane offers, and the daemon's errors come back as ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appliance.client import Client
from appliance.errors import (
    ApplianceError,
    DiskFull,
    DoesNotFit,
    DownloadError,
    EngineFailed,
    Gated,
    LicenseNotAccepted,
    ModelMissing,
    NoDaemon,
    NotVerified,
    OutOfMemory,
    Rejected,
    SettingsError,
    UnknownModel,
)
from tests.client.stub_daemon import StubDaemon

CALLS: list[tuple[Callable[[Client], object], str, str, object]] = [
    (lambda c: c.status(), "GET", "/api/status", None),
    (lambda c: c.models(), "GET", "/api/models", None),
    (lambda c: c.downloads(), "GET", "/api/downloads", None),
    (lambda c: c.start_download("a:Q4"), "POST", "/api/downloads", {"model": "a:Q4"}),
    (
        lambda c: c.start_download("a", accept_license=True, rate=5),
        "POST",
        "/api/downloads",
        {"model": "a", "accept_license": True, "rate": 5},
    ),
    (lambda c: c.pause_download("d1"), "POST", "/api/downloads/d1/pause", {}),
    (lambda c: c.resume_download("d1"), "POST", "/api/downloads/d1/resume", {}),
    (lambda c: c.cancel_download("d1"), "DELETE", "/api/downloads/d1", None),
    (lambda c: c.start_repair("a:Q4"), "POST", "/api/models/a:Q4/repair", {}),
    (lambda c: c.load("a:Q4", ctx=4096), "POST", "/api/models/a:Q4/load", {"ctx": 4096}),
    (lambda c: c.load("a/b:Q4"), "POST", "/api/models/a%2Fb:Q4/load", {}),
    (
        lambda c: c.load("a", kv="q8_0", parallel=2),
        "POST",
        "/api/models/a/load",
        {"kv": "q8_0", "parallel": 2},
    ),
    (lambda c: c.unload("a:Q4"), "POST", "/api/models/a:Q4/unload", {}),
    (lambda c: c.restart("a:Q4"), "POST", "/api/models/a:Q4/restart", {}),
    (lambda c: c.pin("a:Q4", True), "POST", "/api/models/a:Q4/pin", {"pinned": True}),
    (lambda c: c.pin("a/b", False), "POST", "/api/models/a%2Fb/pin", {"pinned": False}),
    (lambda c: c.pinned(), "GET", "/api/settings", None),
    (lambda c: c.verify("a:Q4"), "POST", "/api/models/a:Q4/verify", {}),
    (lambda c: c.remove("a:Q4"), "DELETE", "/api/models/a:Q4", None),
    (
        lambda c: c.plan("a", ctx=1),
        "POST",
        "/api/plan",
        {"model": "a", "ctx": 1, "parallel": None, "kv": None, "gpu_layers": None},
    ),
    (lambda c: c.engines(), "GET", "/api/engines", None),
    (lambda c: c.remotes(), "GET", "/api/remotes", None),
    (
        lambda c: c.add_remote("v", "http://h/v1", api_key_env="VLLM_KEY", models={"a": "B"}),
        "POST",
        "/api/remotes",
        {"name": "v", "url": "http://h/v1", "api_key_env": "VLLM_KEY", "models": {"a": "B"}},
    ),
    (lambda c: c.remove_remote("v"), "DELETE", "/api/remotes/v", None),
    (lambda c: c.test_remote("v"), "POST", "/api/remotes/v/test", {}),
    (lambda c: c.journal(7), "GET", "/api/journal", None),
    (lambda c: c.history(), "GET", "/api/history", None),
    (lambda c: c.settings(), "GET", "/api/settings", None),
    (
        lambda c: c.set_setting("goals.decode", 20),
        "PATCH",
        "/api/settings",
        {"key": "goals.decode", "value": 20},
    ),
    (lambda c: c.logs(0, 10), "GET", "/api/logs", None),
    (lambda c: c.stop_engine(), "POST", "/api/engine/stop", {}),
    (lambda c: c.restart_engine(), "POST", "/api/engine/restart", {}),
    (lambda c: c.shutdown(), "POST", "/api/shutdown", {}),
]


@pytest.mark.parametrize(("call", "method", "path", "body"), CALLS, ids=[f"{c[1]} {c[2]}" for c in CALLS])
def test_call_reaches_its_endpoint(
    client: Client, stub: StubDaemon, call: Callable[[Client], object], method: str, path: str, body: object
) -> None:
    call(client)
    last = stub.script.calls[-1]
    assert (last.method, last.path, last.body) == (method, path, body)


def test_answers_are_typed(client: Client, stub: StubDaemon) -> None:
    stub.script.logs = ["one", "two", "three"]
    stub.script.answers["POST", "/api/downloads"] = (202, {"id": "d9"})
    stub.script.answers["GET", "/api/journal"] = (200, {"requests": [{"request_id": "r1", "status": 200}]})
    assert client.logs(after=1).lines == ("two", "three")
    assert client.logs(after=1).next == 3
    assert client.start_download("a").id == "d9"
    assert client.journal(5)[0].status == 200
    settings = [{"key": "models.default", "value": "x"}, {"key": "models.pinned", "value": ["a:Q4", 5, "b"]}]
    stub.script.answers["GET", "/api/settings"] = (200, {"settings": settings})
    assert client.pinned() == ("a:Q4", "b")
    assert stub.asked("GET", "/api/journal")[0].query == {"limit": ["5"]}


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code"),
    [
        (403, "license", LicenseNotAccepted, 1),
        (403, "gated", Gated, 1),
        (404, "unknown_model", UnknownModel, 4),
        (404, "model_missing", ModelMissing, 4),
        (409, "not_verified", NotVerified, 4),
        (409, "does_not_fit", DoesNotFit, 5),
        (400, "settings", SettingsError, 2),
        (503, "engine_failed", EngineFailed, 1),
        (503, "out_of_memory", OutOfMemory, 5),
        (429, "reject.queue_full", Rejected, 1),
        (500, "a_code_of_tomorrow", ApplianceError, 1),
    ],
)
def test_errors_come_back_by_code(
    client: Client, stub: StubDaemon, status: int, code: str, kind: type[ApplianceError], exit_code: int
) -> None:
    error = {"code": code, "message": "What\x1b[0m", "cause": "Why", "hint": "Do"}
    stub.script.answers["POST", "/api/plan"] = (status, {"error": error})
    with pytest.raises(ApplianceError) as caught:
        client.plan("a")
    assert type(caught.value) is kind
    assert caught.value.exit_code == exit_code
    assert (caught.value.message, caught.value.cause, caught.value.hint) == ("What[0m", "Why", "Do")


def test_what_is_damaged_comes_along(client: Client, stub: StubDaemon) -> None:
    damage = [{"file": "a\x1b[2J.gguf", "kind": "changed", "ranges": [[0, 8]]}, 5, {}]
    error = {"code": "not_verified", "message": "damaged", "damage": damage}
    stub.script.answers["POST", "/api/models/a/verify"] = (409, {"error": error})
    with pytest.raises(NotVerified) as caught:
        client.verify("a")
    assert caught.value.damage == ({"file": "a[2J.gguf", "kind": "changed", "ranges": [[0, 8]]},)
    stub.script.answers["POST", "/api/models/a/verify"] = (409, {"error": error | {"damage": "odd"}})
    with pytest.raises(NotVerified) as caught:
        client.verify("a")
    assert caught.value.damage == ()


def test_force_is_said_in_the_query(client: Client, stub: StubDaemon) -> None:
    client.remove("a:Q4")
    client.remove("a:Q4", force=True)
    assert [call.query for call in stub.asked("DELETE", "/api/models/a:Q4")] == [{}, {"force": ["1"]}]


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"error": "no"}'])
def test_a_refusal_without_the_daemons_words_is_no_daemon(
    client: Client, stub: StubDaemon, body: bytes
) -> None:
    stub.script.answers["POST", "/api/downloads"] = (403, body)
    with pytest.raises(NoDaemon):
        client.start_download("a")


def rows(stub: StubDaemon, *documents: dict[str, Any]) -> None:
    stub.script.answers["GET", "/api/downloads"] = (200, {"downloads": list(documents)})


ROW = {"id": "7", "ref": "a:Q4", "phase": "done", "finished": True, "fetched": 12}


def test_a_repair_is_followed_to_its_end(client: Client, stub: StubDaemon) -> None:
    stub.script.answers["POST", "/api/models/a/repair"] = (200, {"id": "7", "ref": "a:Q4"})
    rows(stub, ROW)
    seen: list[str] = []
    assert client.repair("a", lambda row: seen.append(row.phase)) == {"ref": "a:Q4", "fetched": 12}
    assert seen == ["done"]


@pytest.mark.parametrize(
    ("row", "kind", "words"),
    [
        (ROW | {"phase": "failed", "error": {"code": "disk_full", "message": "Full.", "hint": "Free."}},
         DiskFull, "Full."),
        (ROW | {"phase": "failed", "error": None, "message": "why"}, DownloadError, "why"),
        (ROW | {"phase": "cancelled", "error": "odd"}, DownloadError, "cancelled"),
        (ROW | {"phase": "paused", "finished": False, "paused": True}, DownloadError, "resumes it"),
        (ROW | {"id": "8"}, DownloadError, "no longer knows"),
    ],
)  # fmt: skip
def test_what_a_download_ended_with_is_raised(
    client: Client, stub: StubDaemon, row: dict[str, Any], kind: type[ApplianceError], words: str
) -> None:
    rows(stub, row)
    with pytest.raises(kind) as caught:
        client.follow("7")
    assert words in str(caught.value)


def test_following_has_an_end(client: Client, stub: StubDaemon) -> None:
    rows(stub, ROW | {"phase": "a word of tomorrow", "finished": False})
    with pytest.raises(DownloadError, match="too long"):
        client.follow("7", limit_s=0.05)


def test_last_lines_of_a_failed_engine_come_along(client: Client, stub: StubDaemon) -> None:
    error = {"code": "engine_failed", "message": "ended", "lines": ["E out of memory", 5]}
    stub.script.answers["POST", "/api/engine/restart"] = (503, {"error": error})
    with pytest.raises(EngineFailed) as caught:
        client.restart_engine()
    assert caught.value.lines == ("E out of memory",)


def test_a_daemon_that_leaves_is_no_daemon(client: Client, stub: StubDaemon) -> None:
    stub.stop()
    with pytest.raises(NoDaemon):
        client.status()


def test_events_are_snapshots(client: Client, stub: StubDaemon) -> None:
    stub.script.events = [
        b": hello\n\n",
        b'event: snapshot\ndata: {"thermal":\ndata: "cool"}\n\n',
        b"event: status\ndata: not json\n\n",
        b'event: status\r\ndata:{"thermal": "warm"}\r\n\r\n',
        b'data: {"thermal": "never finished"}\n',
    ]
    assert [shot.thermal for shot in client.events()] == ["cool", "warm"]


def test_events_that_are_refused_raise(client: Client, stub: StubDaemon) -> None:
    answer: dict[str, Any] = {"error": {"code": "usage", "message": "too many listeners"}}
    stub.script.answers["GET", "/api/events"] = (429, answer)
    with pytest.raises(ApplianceError, match="too many"):
        next(client.events())
