"""Downloads as a user meets them: through the daemon or without one, interrupted, killed, limited."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.client import Client
from appliance.errors import LicenseNotAccepted
from appliance.paths import Paths
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


@pytest.fixture
def host(body: bytes) -> Iterator[Host]:
    with serving(body) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path, host: Host) -> Home:
    """A user whose catalog has two small models at the local server, one under a licence that limits use."""
    home = Home(tmp_path / "home", {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"})
    text = catalog(host, "free", "other", "limited")
    head, _, tail = text.partition("[models.limited]")
    home.catalog(
        head
        + "[models.limited]"
        + tail.replace("context", 'license_note = "Non-commercial use only."\ncontext', 1)
    )
    return home


def client(home: Home) -> Client:
    root = home.root
    return Client.connect(Paths(*(root / name for name in ("config", "data", "state", "cache", "run"))))


def row(home: Home, key: str = "1") -> dict[str, Any]:
    rows = client(home).call("GET", "/api/downloads")["downloads"]
    return next(dict(one) for one in rows if one["id"] == key)


def arrived(home: Home, n_bytes: int, key: str = "1") -> bool:
    return bool(row(home, key)["done"] > n_bytes)


def raw(up: Running, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    """One request as any HTTP client would send it."""
    token = json.loads((up.home.root / "state" / "daemon.json").read_text())["token"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(up.root + path, data=data, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_control_plane_starts_pauses_resumes_and_cancels(fresh: Home, host: Host) -> None:
    always(host, SLOW)
    with fresh.up("--empty") as up:
        status, started = raw(up, "POST", "/api/downloads", {"model": "free"})
        assert (status, started) == (200, {"id": "1", "ref": "free:F32", "how": "new", "limit": None})
        until(lambda: arrived(fresh, 3 * MIB), 30, "some bytes")
        status, paused = raw(up, "POST", "/api/downloads/1/pause", {})
        assert (status, paused["phase"], paused["paused"], paused["rate"]) == (200, "paused", True, None)
        at = host.sent
        time.sleep(0.5)
        assert host.sent - at <= MIB
        assert up.status()["downloads"][0]["paused"] is True
        models = {one["ref"]: one for one in raw(up, "GET", "/api/models")[1]["models"]}
        assert models["free:F32"]["arrived"] > 0
        assert models["free:F32"]["state"] == "partial"
        assert models["other:F32"]["arrived"] in (None, 0)
        assert models["free:F32"]["fits"] is not None
        assert raw(up, "POST", "/api/downloads/1/resume", {})[1]["phase"] in ("waiting", "checking disk")
        assert raw(up, "DELETE", "/api/downloads/1")[0] == 200
        assert row(fresh)["phase"] == "cancelled"
        assert raw(up, "DELETE", "/api/downloads/1")[0] == 200
        assert raw(up, "GET", "/api/downloads")[1] == {"downloads": []}
        always(host)
        before = host.sent
        assert raw(up, "POST", "/api/downloads", {"model": "free", "rate": 100 * MIB})[1]["how"] == "new"
        until(lambda: row(fresh, "2")["phase"] == "done", 30, "done")
        assert host.sent - before < SIZE - MIB, "it went on where it was"


@pytest.mark.parametrize(
    ("method", "path", "sent", "status"),
    [
        ("POST", "/api/downloads", {"model": "no-such"}, 404),
        ("POST", "/api/downloads", {}, 404),
        ("POST", "/api/downloads", {"model": "free", "rate": 0}, 400),
        ("POST", "/api/downloads", {"model": "free", "rate": "5MiB"}, 400),
        ("POST", "/api/downloads", {"model": "free", "rate": True}, 400),
        ("POST", "/api/downloads", {"model": "free", "accept_license": "yes"}, 400),
        ("POST", "/api/downloads/9/pause", {}, 404),
        ("POST", "/api/downloads/9/resume", {}, 404),
        ("DELETE", "/api/downloads/9", None, 404),
        ("POST", "/api/models/no-such/repair", {}, 404),
        ("DELETE", "/api/models/free?force=2", None, 400),
        ("DELETE", "/api/models/free?force=1", None, 404),
    ],
)
def test_what_makes_no_sense_is_refused(
    empty: Running, method: str, path: str, sent: object, status: int
) -> None:
    code, document = raw(empty, method, path, sent)
    assert code == status, document
    assert document["error"]["message"]
    assert raw(empty, "GET", "/api/downloads")[1] == {"downloads": []}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> Iterator[Running]:
    """A daemon without a model, for requests that change nothing."""
    with serving(body) as host:
        home = Home(tmp_path_factory.mktemp("empty"), {"NO_PROXY": "127.0.0.1"})
        home.catalog(catalog(host, "free"))
        with home.up("--empty") as up:
            yield up


def test_a_killed_daemon_goes_on_by_itself_at_the_next_start(fresh: Home, host: Host) -> None:
    always(host, SLOW)
    with fresh.up("--empty") as up:
        raw(up, "POST", "/api/downloads", {"model": "free"})
        raw(up, "POST", "/api/downloads", {"model": "other"})
        until(lambda: arrived(fresh, 6 * MIB), 30, "some bytes")
        raw(up, "POST", "/api/downloads/2/pause", {})
        kept = row(fresh)["done"]
        os.kill(up.pid, signal.SIGKILL)
        up.process.wait(10)
    always(host)
    before = host.sent
    with fresh.up("--empty"):
        until(lambda: row(fresh)["phase"] == "done", 30, "the download goes on by itself")
        assert host.sent - before <= SIZE - kept + UNLOGGED
        assert row(fresh, "2")["phase"] == "paused"
        assert fresh.run("models", "verify", "free").code == 0
        assert [one["ref"] for one in client(fresh).call("GET", "/api/downloads")["downloads"]] == [
            "free:F32",
            "other:F32",
        ]


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
    done = interrupted(fresh, "models", "pull", "free", ready=lambda: host.sent > 8 * MIB)
    assert done.code == 130
    assert "What has arrived is kept" in done.err
    assert "Traceback" not in done.err
    always(host)
    before = host.sent
    again = fresh.run("models", "pull", "free", "--json")
    assert again.code == 0, again.err
    assert set(again.document) == {"ref", "path", "verified"}
    assert host.sent - before <= SIZE - 8 * MIB + UNLOGGED


def test_ctrl_c_leaves_the_daemons_download_as_it_was_found(fresh: Home, host: Host) -> None:
    always(host, SLOW)
    with fresh.up("--empty"):
        done = interrupted(fresh, "models", "pull", "free", ready=lambda: _running(fresh, MIB))
        assert (done.code, row(fresh)["phase"]) == (130, "cancelled")
        assert "Stopped. What has arrived is kept" in done.err

        client(fresh).start_download("free")
        until(lambda: row(fresh)["phase"] == "downloading", 30, "it runs")
        process, err_file = fresh.spawn("models", "pull", "free")
        until(lambda: "downloading" in err_file.read_text(), 30, "it is followed")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        process.communicate()
        assert "The daemon goes on with it" in err_file.read_text()
        assert row(fresh)["phase"] == "downloading"

        client(fresh).pause_download("1")
        done = interrupted(fresh, "models", "pull", "free", ready=lambda: _running(fresh, 0))
        assert (done.code, row(fresh)["phase"]) == (130, "paused")
        assert "It is paused again" in done.err
        always(host)
        assert fresh.run("models", "pull", "free", "--json").document["verified"] is True


def _running(home: Home, least: int) -> bool:
    rows = client(home).downloads()
    return bool(rows) and rows[0].phase == "downloading" and (rows[0].done or 0) >= least


def test_a_pull_ends_when_somebody_pauses_it_and_nobody_looks(fresh: Home, host: Host) -> None:
    always(host, SLOW)
    with fresh.up("--empty"):
        process, err_file = fresh.spawn("models", "pull", "free")
        until(lambda: _running(fresh, MIB), 30, "it runs")
        client(fresh).pause_download("1")
        assert process.wait(30) == 1
        process.communicate()
        assert "is paused" in err_file.read_text()
        assert "appliance models pull free:F32" in err_file.read_text()


def test_a_limit_holds_with_and_without_a_daemon(fresh: Home, host: Host) -> None:
    took = []
    for through in (False, True):
        began = time.monotonic()
        if through:
            with fresh.up("--empty"):
                began = time.monotonic()
                done = fresh.run("models", "pull", "other", "--limit-rate", "8MiB")
                took.append(time.monotonic() - began)
        else:
            done = fresh.run("models", "pull", "free", "--limit-rate", "8MiB/s")
            took.append(time.monotonic() - began)
        assert done.code == 0, done.err
    assert min(took) >= 2.0, "24 MiB at 8 MiB a second"
    for wrong in ("0", "fast", "-1MiB"):
        assert fresh.run("models", "pull", "free", "--limit-rate", wrong).code == 2


def test_a_licence_that_limits_is_refused_until_it_is_accepted(fresh: Home) -> None:
    done = fresh.run("models", "pull", "limited")
    assert done.code == 1
    assert "Non-commercial use only." in done.err
    assert "--accept-license" in done.err
    assert fresh.run("up", "limited", "--port", "0").code == 1
    with fresh.up("--empty") as up:
        status, document = raw(up, "POST", "/api/downloads", {"model": "limited"})
        assert (status, document["error"]["code"]) == (403, "license")
        with pytest.raises(LicenseNotAccepted):
            client(fresh).start_download("limited")
        refused = fresh.run("models", "pull", "limited")
        assert (refused.code, "Non-commercial use only." in refused.err) == (1, True)
        assert fresh.run("models", "pull", "limited", "--accept-license").code == 0
    assert fresh.run("models", "rm", "limited").code == 0
    assert fresh.run("models", "pull", "limited").code == 0, "it was accepted on this machine"


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


def test_a_model_that_is_served_is_removed_only_by_force(fresh: Home, smollm2_path: Path) -> None:
    with serving(smollm2_path.read_bytes()) as real:
        fresh.catalog(catalog(real, "local"))
        with fresh.up("local", "--ctx", "512", "--parallel", "1") as up:
            engine = up.engine_pid()
            refused = fresh.run("models", "rm", "local")
            assert (refused.code, "is loaded now" in refused.err) == (1, True)
            assert client(fresh).remove("local", force=True)["freed"] > 90 * MIB
            assert up.status()["engines"][0]["state"] == "absent"
            until(lambda: not Path(f"/proc/{engine}").exists(), 10, "the engine is gone")
            assert client(fresh).call("GET", "/api/downloads")["downloads"] == []
        assert fresh.run("models", "list", "--here", "--json").document["models"] == []


def test_a_damaged_model_that_is_served_is_mended_and_loaded_again(fresh: Home, smollm2_path: Path) -> None:
    with serving(smollm2_path.read_bytes()) as real:
        fresh.catalog(catalog(real, "local"))
        assert fresh.run("models", "pull", "local").code == 0
        file = Path(fresh.run("models", "list", "--here", "--json").document["models"][0]["path"])
        with fresh.up("local", "--ctx", "512", "--parallel", "1") as up:
            assert client(fresh).repair("local") == {"ref": "local:F32", "fetched": 0}
            engine = up.engine_pid()
            with file.open("r+b") as damaged:
                damaged.seek(50 * MIB)
                byte = damaged.read(1)
                damaged.seek(50 * MIB)
                damaged.write(bytes([byte[0] ^ 1]))
            before = real.sent
            mended = client(fresh).repair("local")
            assert mended["ref"] == "local:F32"
            assert 0 < mended["fetched"] <= 8 * MIB, "only the chunk that differs"
            assert real.sent - before <= 9 * MIB
            until(lambda: up.status()["engines"][0]["state"] == "ready", 60, "it is loaded again")
            assert up.engine_pid() != engine
            plan = up.status()["engines"][0]
            assert (plan["ctx"], plan["parallel"]) == (512, 1), "with the same wishes"
        assert fresh.run("models", "verify", "local").code == 0
