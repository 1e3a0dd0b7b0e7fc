"""Finding the daemon: who answers, who does not, and what the user is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance import __version__, processes
from appliance.client import Client, record
from appliance.errors import NoDaemon
from appliance.paths import Paths
from tests.client.stub_daemon import TOKEN, StubDaemon


def test_connects_to_the_daemon_that_daemon_json_names(stub: StubDaemon, paths: Paths) -> None:
    client = Client.connect(paths)
    assert (client.pid, client.url) == (os.getpid(), stub.url)
    assert client.version_mismatch is None


def test_without_a_file_it_says_how_to_start_one(paths: Paths) -> None:
    with pytest.raises(NoDaemon) as caught:
        Client.connect(paths.make())
    assert caught.value.exit_code == 3
    assert "appliance up" in (caught.value.hint or "")


def test_a_dead_pid_is_no_daemon(stub: StubDaemon, paths: Paths) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    stub.write_record(pid=child.pid)
    with pytest.raises(NoDaemon, match="has ended"):
        Client.connect(paths)


def test_a_zombie_is_no_daemon(stub: StubDaemon, paths: Paths) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but not yet reaped
    stub.write_record(pid=child.pid, start_time=None)
    try:
        with pytest.raises(NoDaemon, match="has ended"):
            Client.connect(paths)
    finally:
        child.wait()


def test_a_reused_pid_is_no_daemon_and_gets_no_token(stub: StubDaemon, paths: Paths) -> None:
    started = processes.start_time(os.getpid())
    assert started is not None
    stub.write_record(start_time=started - 3_600)
    with pytest.raises(NoDaemon, match="has ended"):
        Client.connect(paths)
    assert stub.script.calls == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ticks are read from /proc")
def test_ticks_win_over_the_wall_clock(stub: StubDaemon, paths: Paths) -> None:
    ticks = processes.start_ticks(os.getpid())
    assert ticks is not None
    stub.write_record(start_time=1.0, start_ticks=ticks)
    assert Client.connect(paths).pid == os.getpid()
    stub.write_record(start_ticks=ticks + 1)
    with pytest.raises(NoDaemon):
        Client.connect(paths)


def test_a_closed_port_is_no_daemon(stub: StubDaemon, paths: Paths) -> None:
    stub.stop()
    with pytest.raises(NoDaemon, match="refused"):
        Client.connect(paths)


def test_a_silent_daemon_is_given_up_in_time(stub: StubDaemon, paths: Paths) -> None:
    stub.script.held.clear()
    with pytest.raises(NoDaemon, match=r"silent for 0\.2 s"):
        Client.connect(paths, timeout_s=0.2)


def test_another_process_at_the_address_is_named(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status["daemon"]["pid"] = 1
    with pytest.raises(NoDaemon, match="served by process 1"):
        Client.connect(paths)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1]", b"[" * 200_000])
def test_a_stranger_at_the_address_is_no_daemon(stub: StubDaemon, paths: Paths, body: bytes) -> None:
    stub.script.answers["GET", "/api/status"] = (200, body)
    with pytest.raises(NoDaemon, match="Another program"):
        Client.connect(paths)


def test_a_refused_token_says_to_restart_and_never_shows_it(stub: StubDaemon, paths: Paths) -> None:
    stub.write_record(token="another-token-987")
    with pytest.raises(NoDaemon, match="does not accept the token") as caught:
        Client.connect(paths)
    assert "another-token-987" not in str(caught.value)


def test_redirects_are_not_followed(stub: StubDaemon, paths: Paths) -> None:
    stub.script.headers["Location"] = f"{stub.url}/elsewhere"
    stub.script.answers["GET", "/api/status"] = (302, b"")
    with pytest.raises(NoDaemon, match="status 302"):
        Client.connect(paths)
    assert [call.path for call in stub.script.calls] == ["/api/status"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"pid": 1}', '{"pid": -5, "url": "http://127.0.0.1:1", "token": "t"}',
     '{"pid": 1, "url": "file:///etc/passwd", "token": "t"}', '{"pid": 1, "url": "http://[", "token": "t"}',
     '{"pid": 1, "url": "http://h:99999999", "token": "t"}',
     '{"pid": 1, "url": "http://h", "token": "a\\r\\nb"}'],
)  # fmt: skip
def test_a_broken_file_is_reported_not_raised_through(paths: Paths, content: str) -> None:
    paths.make().daemon_file.write_text(content, encoding="utf-8")
    with pytest.raises(NoDaemon) as caught:
        record.read(paths.daemon_file)
    assert str(paths.daemon_file) in str(caught.value)


def _circles(hint: str | None) -> bool:
    """True when the hint names a command that follows the same `daemon.json` to the same failure."""
    return any(f"appliance {word}" in (hint or "") for word in ("down", "status", "logs"))


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', '{"pid": 1, "url": "file:///x", "token": "t"}'])
def test_a_broken_file_has_a_hint_that_leads_on(paths: Paths, content: str) -> None:
    paths.make().daemon_file.write_text(content, encoding="utf-8")
    with pytest.raises(NoDaemon) as caught:
        Client.connect(paths)
    assert caught.value.hint == record.UNCLEAR_HINT
    assert "`appliance up`" in record.UNCLEAR_HINT
    assert not _circles(caught.value.hint)


def test_a_stranger_a_closed_port_and_silence_have_hints_that_lead_on(stub: StubDaemon, paths: Paths) -> None:
    hints = []
    for status, body in ((200, b"<html>"), (401, b"{}"), (404, b"nothing here")):
        stub.script.answers["GET", "/api/status"] = (status, body)
        with pytest.raises(NoDaemon) as caught:
            Client.connect(paths)
        hints.append(caught.value.hint)
    del stub.script.answers["GET", "/api/status"]
    stub.script.status["daemon"]["pid"] = 1
    with pytest.raises(NoDaemon) as caught:
        Client.connect(paths)
    hints.append(caught.value.hint)
    stub.script.held.clear()
    with pytest.raises(NoDaemon) as caught:
        Client.connect(paths, timeout_s=0.2)
    hints.append(caught.value.hint)
    stub.stop()
    with pytest.raises(NoDaemon) as caught:
        Client.connect(paths)
    hints.append(caught.value.hint)
    assert len(hints) == 6
    assert all("appliance up" in (hint or "") and not _circles(hint) for hint in hints)


def test_another_version_is_told(stub: StubDaemon, paths: Paths) -> None:
    stub.write_record(version="99.0")
    assert Client.connect(paths).version_mismatch == "99.0"
    assert __version__ != "99.0"


def test_the_token_is_in_no_repr(stub: StubDaemon, paths: Paths) -> None:
    client = Client.connect(paths)
    found = record.read(paths.daemon_file)
    assert found.token == TOKEN
    assert TOKEN not in f"{client!r}{found!r}{client._transport!r}"


def test_importing_the_client_loads_nothing_heavy() -> None:
    code = "import sys, appliance.client; print(*sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_root()
    )
    loaded = {name.partition(".")[0] for name in out.stdout.split()}
    assert loaded.isdisjoint({"aiohttp", "pydantic", "rich", "click", "textual", "psutil", "asyncio", "http"})
    ours = {name for name in out.stdout.split() if name.startswith("appliance.")}
    lower = {
        "appliance.errors",
        "appliance.text",
        "appliance.units",
        "appliance.paths",
        "appliance.processes",
    }
    assert all(name in lower or name.startswith("appliance.client") for name in ours)


def _root() -> Path:
    return Path(__file__).parents[2]
