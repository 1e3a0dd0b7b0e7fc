"""Downloads as a user meets them: through the daemon or without one, interrupted, killed, limited."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import LicenseNotAccepted
from tests.daemon.shelf import catalog
from tests.end_to_end.appliance import Done, Home, Running, until
from tests.end_to_end.local_host import always, serving
from tests.store.helpers import MIB, gguf
from tests.store.server import Host, throttled

SIZE = 24 * MIB
UNLOGGED = 5 * MIB
SLOW = throttled(0.03)
"""About 2 MiB a second and connection."""


@pytest.fixture(scope="module")
def body() -> bytes:
    return gguf(SIZE)


@pytest.fixture(scope="module")
def shared(body: bytes) -> Iterator[Host]:
    with serving(body) as made:
        yield made


@pytest.fixture
def host(shared: Host) -> Host:
    """The server, honest and quick again."""
    shared.acts = []
    return shared


IDS = ("free", "other", "limited", "stopped", "followed", "left", "slow")


def home_at(root: Path, host: Host) -> Home:
    """A user whose catalog has small models at the local server, one under a licence that limits use."""
    home = Home(root, {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"})
    head, mark, tail = catalog(host, *IDS).partition("[models.limited]")
    note = 'license_note = "Non-commercial use only."\ncontext'
    home.catalog(head + mark + tail.replace("context", note, 1))
    return home


@pytest.fixture
def fresh(tmp_path: Path, host: Host) -> Home:
    """A user who has nothing yet."""
    return home_at(tmp_path / "home", host)


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory, shared: Host) -> Iterator[Running]:
    with home_at(tmp_path_factory.mktemp("resident"), shared).up("--empty") as running:
        yield running


@pytest.fixture
def up(resident: Running, host: Host) -> Iterator[Running]:
    """A daemon without a model and without downloads, which the tests here share."""
    yield resident
    for one in resident.home.client().downloads():
        for _ in range(1 if one.finished else 2):  # a running one is cancelled, and then off the list
            resident.home.client().cancel_download(one.id)


def row(home: Home, key: str = "1") -> dict[str, Any]:
    return next(one for one in home.client().call("GET", "/api/downloads")["downloads"] if one["id"] == key)


def arrived(home: Home, n_bytes: int, key: str = "1") -> bool:
    return bool(row(home, key)["done"] > n_bytes)


def test_the_control_plane_starts_pauses_resumes_and_cancels(up: Running, host: Host) -> None:
    home = up.home
    always(host, SLOW)
    status, started = up.raw("POST", "/api/downloads", {"model": "free"})
    key = started["id"]
    assert (status, started) == (200, {"id": key, "ref": "free:F32", "how": "new", "limit": None})
    until(lambda: arrived(home, 3 * MIB, key), 30, "some bytes")
    status, paused = up.raw("POST", f"/api/downloads/{key}/pause", {})
    assert (status, paused["phase"], paused["paused"], paused["rate"]) == (200, "paused", True, None)
    at = host.sent
    time.sleep(0.5)
    assert host.sent - at <= MIB
    assert up.raw("GET", "/api/status")[1]["downloads"][0]["paused"] is True
    models = {one["ref"]: one for one in up.raw("GET", "/api/models")[1]["models"]}
    assert models["free:F32"]["arrived"] > 0
    assert models["free:F32"]["state"] == "partial"
    assert models["other:F32"]["arrived"] in (None, 0)
    assert models["free:F32"]["fits"] is not None
    assert up.raw("POST", f"/api/downloads/{key}/resume", {})[1]["phase"] != "paused"
    assert up.raw("DELETE", f"/api/downloads/{key}")[0] == 200
    assert row(home, key)["phase"] == "cancelled"
    assert up.raw("DELETE", f"/api/downloads/{key}")[0] == 200
    assert up.raw("GET", "/api/downloads")[1] == {"downloads": []}
    always(host)
    before = host.sent
    again = up.raw("POST", "/api/downloads", {"model": "free", "rate": 100 * MIB})[1]
    assert again["how"] == "new"
    until(lambda: row(home, again["id"])["phase"] == "done", 30, "done")
    assert host.sent - before < SIZE - MIB, "it went on where it was"


@pytest.mark.parametrize(
    ("method", "path", "sent", "status"),
    [
        ("POST", "/api/downloads", {"model": "no-such"}, 404),
        ("POST", "/api/downloads", {}, 404),
        ("POST", "/api/downloads", {"model": "slow", "rate": 0}, 400),
        ("POST", "/api/downloads", {"model": "slow", "rate": "5MiB"}, 400),
        ("POST", "/api/downloads", {"model": "slow", "rate": True}, 400),
        ("POST", "/api/downloads", {"model": "slow", "accept_license": "yes"}, 400),
        ("POST", "/api/downloads/999/pause", {}, 404),
        ("POST", "/api/downloads/999/resume", {}, 404),
        ("DELETE", "/api/downloads/999", None, 404),
        ("POST", "/api/models/no-such/repair", {}, 404),
        ("DELETE", "/api/models/slow?force=2", None, 400),
        ("DELETE", "/api/models/slow?force=1", None, 404),
    ],
)
def test_what_makes_no_sense_is_refused(
    up: Running, method: str, path: str, sent: object, status: int
) -> None:
    code, document = up.raw(method, path, sent)
    assert code == status, document
    assert document["error"]["message"]
    assert up.raw("GET", "/api/downloads")[1] == {"downloads": []}


def test_a_killed_daemon_goes_on_by_itself_at_the_next_start(fresh: Home, host: Host) -> None:
    always(host, SLOW)
    with fresh.up("--empty") as up:
        up.raw("POST", "/api/downloads", {"model": "free"})
        up.raw("POST", "/api/downloads", {"model": "other"})
        until(lambda: arrived(fresh, 6 * MIB), 30, "some bytes")
        up.raw("POST", "/api/downloads/2/pause", {})
        kept = row(fresh)["done"]
        os.kill(up.pid, signal.SIGKILL)
        up.process.wait(10)
    always(host)
    before = host.sent
    with fresh.up("--empty"):
        until(lambda: row(fresh)["phase"] == "done", 30, "the download goes on by itself")
        assert host.sent - before <= SIZE - kept + UNLOGGED
        assert row(fresh, "2")["phase"] == "paused"
        assert fresh.here("models", "verify", "free").code == 0
        rows = fresh.client().call("GET", "/api/downloads")["downloads"]
        assert sorted(one["ref"] for one in rows) == ["free:F32", "other:F32"], "none lost, none doubled"


def interrupted(home: Home, *arguments: str, ready: Any) -> Done:
    """A command that gets Ctrl-C once `ready` holds."""
    process, err_file = home.spawn(*arguments)
    try:
        until(ready, 30, "it is at work")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    return Done(process.returncode, out, err_file.read_text())


def test_ctrl_c_on_a_pull_keeps_what_has_arrived(fresh: Home, host: Host) -> None:
    always(host, SLOW)
    at = host.sent
    done = interrupted(fresh, "models", "pull", "free", ready=lambda: host.sent - at > 8 * MIB)
    assert done.code == 130
    assert "What has arrived is kept" in done.err
    assert "Traceback" not in done.err
    always(host)
    before = host.sent
    again = fresh.here("models", "pull", "free", "--json")
    assert again.code == 0, again.err
    assert set(again.document) == {"ref", "path", "verified"}
    assert host.sent - before <= SIZE - 8 * MIB + UNLOGGED


def test_ctrl_c_leaves_the_daemons_download_as_it_was_found(up: Running, host: Host) -> None:
    home = up.home
    always(host, SLOW)
    done = interrupted(home, "models", "pull", "followed", ready=lambda: _running(home, MIB))
    key = home.client().downloads()[0].id
    assert (done.code, row(home, key)["phase"]) == (130, "cancelled")
    assert "Stopped. What has arrived is kept" in done.err

    home.client().start_download("followed")
    until(lambda: row(home, key)["phase"] == "downloading", 30, "it runs")
    process, err_file = home.spawn("models", "pull", "followed")
    until(lambda: "downloading" in err_file.read_text(), 30, "it is followed")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.communicate()
    assert "The daemon goes on with it" in err_file.read_text()
    assert row(home, key)["phase"] == "downloading"

    home.client().pause_download(key)
    done = interrupted(home, "models", "pull", "followed", ready=lambda: _running(home, 0))
    assert (done.code, row(home, key)["phase"]) == (130, "paused")
    assert "It is paused again" in done.err
    always(host)
    assert home.here("models", "pull", "followed", "--json").document["verified"] is True


def _running(home: Home, least: int) -> bool:
    rows = home.client().downloads()
    return bool(rows) and rows[0].phase == "downloading" and (rows[0].done or 0) >= least


def test_a_pull_ends_when_somebody_pauses_it_and_nobody_looks(up: Running, host: Host) -> None:
    always(host, SLOW)
    process, err_file = up.home.spawn("models", "pull", "left")
    until(lambda: _running(up.home, MIB), 30, "it runs")
    up.home.client().pause_download(up.home.client().downloads()[0].id)
    assert process.wait(30) == 1
    process.communicate()
    assert "is paused" in err_file.read_text()
    assert "appliance models pull left:F32" in err_file.read_text()


@pytest.mark.parametrize("through", [False, True])
def test_a_limit_holds_with_and_without_a_daemon(fresh: Home, request: Any, through: bool) -> None:
    home = request.getfixturevalue("up").home if through else fresh
    began = time.monotonic()
    done = home.here("models", "pull", "slow", "--limit-rate", "12MiB/s")
    assert done.code == 0, done.err
    assert time.monotonic() - began >= 1.5, "24 MiB at 12 MiB a second"
    for wrong in ("0", "fast", "-1MiB"):
        assert home.here("models", "pull", "slow", "--limit-rate", wrong).code == 2


def test_a_licence_that_limits_is_refused_until_it_is_accepted(up: Running) -> None:
    home = up.home
    status, document = up.raw("POST", "/api/downloads", {"model": "limited"})
    assert (status, document["error"]["code"]) == (403, "license")
    with pytest.raises(LicenseNotAccepted):
        home.client().start_download("limited")
    done = home.here("models", "pull", "limited")
    assert done.code == 1
    assert "Non-commercial use only." in done.err
    assert "--accept-license" in done.err
    assert home.here("models", "pull", "limited", "--accept-license").code == 0
    assert home.here("models", "rm", "limited").code == 0
    assert home.here("models", "pull", "limited").code == 0, "it was accepted on this machine"


def test_without_a_daemon_the_licence_is_asked_for_as_well(fresh: Home) -> None:
    done = fresh.here("models", "pull", "limited")
    assert (done.code, "Non-commercial use only." in done.err) == (1, True)
    assert fresh.here("up", "limited", "--port", "0").code == 1
    assert fresh.here("models", "pull", "limited", "--accept-license").code == 0


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_at_a_terminal_the_licence_is_asked_for(fresh: Home, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance.cli.main", "models", "pull", "limited"],
        env=fresh.environment({"TERM": "xterm", "COLUMNS": "80"}), stdin=theirs, stderr=theirs,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while b"[y/N]" not in seen:
            seen += os.read(ours, 4096)
        assert b"Non-commercial use only." in seen
        os.write(ours, answer.encode() + b"\n")
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        assert process.wait(30) == code
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
    assert (b"--accept-license" in seen) is (code == 1)
