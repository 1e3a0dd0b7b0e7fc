"""`status --watch`: on each change, through a restart of the daemon, on a terminal and into a pipe."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.watching import Blocks, JsonLines, Look, Screen, fitted, looks
from appliance.client import Client, StatusSnapshot
from appliance.paths import Paths
from tests.cli.indoors import Indoors
from tests.client.stub_daemon import StubDaemon

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Indoors:
    return Indoors(tmp_path)


def event(**changes: Any) -> bytes:
    document = {"daemon": {"url": "http://127.0.0.1:1", "pid": os.getpid(), "started": 0}, **changes}
    return f"event: status\ndata: {json.dumps(document)}\n\n".encode()


def shot(**changes: Any) -> StatusSnapshot:
    return StatusSnapshot.parse({"daemon": {"url": "http://127.0.0.1:1", "pid": 7, "started": 0}, **changes})


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubDaemon]:
    folders = Paths(*(tmp_path / name for name in ("config", "data", "state", "cache", "run")))
    daemon = StubDaemon(folders).start()
    daemon.script.events = [event(thermal="cool"), event(thermal="warm")]
    yield daemon
    daemon.stop()


def test_a_daemon_that_restarts_is_found_again(stub: StubDaemon) -> None:
    waited: list[float] = []

    def restart(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 4:
            stub.start()

    ticks = iter(range(1_000))
    found = looks(lambda: Client.connect(stub.paths), restart, clock=lambda: float(next(ticks)))
    seen = [next(found), next(found)]
    stub.stop()
    seen += islice(found, 5)
    assert [look.snapshot.thermal if look.snapshot else "lost" for look in seen] == [
        "cool", "warm", "lost", "lost", "lost", "cool", "warm",
    ]  # fmt: skip
    assert [look.first for look in seen] == [False, False, True, False, False, False, False]
    assert len({look.lost_since for look in seen[2:5]}) == 1


def test_a_daemon_without_a_stream_is_asked_once_a_second(stub: StubDaemon) -> None:
    stub.script.answers["GET", "/api/events"] = (429, {"error": {"code": "usage", "message": "too many"}})
    waited: list[float] = []
    found = looks(lambda: Client.connect(stub.paths), waited.append)
    assert all(look.snapshot is not None for look in islice(found, 3))
    assert waited == [1.0, 1.0]


def test_into_a_pipe_goes_a_block_with_its_time_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = Blocks(clock=lambda: 1_777_896_000.0)
    for look in (
        Look(shot(thermal="cool")), Look(shot(thermal="cool")), Look(shot(thermal="warm")),
        Look(None, 5.0, first=True), Look(None, 5.0), Look(shot(thermal="warm")),
    ):  # fmt: skip
        blocks.show(look)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert [line for line in lines if line.startswith(("Heat", "Daemon    lost"))] == [
        "Heat      cool", "Heat      warm", "Daemon    lost, looking...", "Heat      warm",
    ]  # fmt: skip
    assert sum(line.startswith("--- 2026-05-04") for line in lines) == 4
    assert "\x1b" not in out


def test_json_is_one_document_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    face = JsonLines()
    for look in (Look(shot(thermal="cool")), Look(None, 5.0, first=True), Look(None, 5.0), Look(shot())):
        face.show(look)
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [document["daemon"] is None for document in documents] == [False, True, False]
    assert documents[0]["thermal"] == "cool"


def test_a_screen_is_never_longer_or_wider_than_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert fitted(["x" * 90, "y"], 80, 24) == ["x" * 79 + "…", "y"]
    cut = fitted([f"line {n}" for n in range(40)], 80, 24)
    assert len(cut) == 24
    assert cut[-1].startswith("… 17 more lines")
    screen = Screen(clock=lambda: 100.0)
    screen.show(Look(shot(thermal="throttled")))
    screen.show(Look(None, 60.0, first=True))
    out = capsys.readouterr().out
    assert out.count("\x1b[H") == 2, "each is drawn over the last one, in one write"
    assert "\x1b[2J" not in out, "a cleared screen flickers"
    assert "lost for 40 s, looking..." in out
    assert out.rindex("Heat      throttled") > out.index("lost for"), "what it said last stays"


def test_without_a_daemon_it_says_so_at_once(home: Indoors) -> None:
    done = home.run("status", "--watch")
    assert (done.code, done.out) == (3, "")
    assert "appliance up" in done.err


@pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
def test_ctrl_c_ends_it_silently_and_gives_the_terminal_back(
    home: Indoors, monkeypatch: pytest.MonkeyPatch, on_terminal: bool
) -> None:
    for name, value in home.environment({}).items():
        monkeypatch.setenv(name, value)
    from appliance import paths

    daemon = StubDaemon(paths.find()).start()
    daemon.script.events = [event(thermal="warm"), event(thermal="critical")]
    command = [sys.executable, "-m", "appliance.cli.main", "status", "--watch"]
    env = {**os.environ, **home.environment({}), "NO_COLOR": "1", "TERM": "xterm", "PYTHONUNBUFFERED": "1"}
    ours, theirs = pty.openpty()
    out = theirs if on_terminal else subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=theirs, stdout=out, stderr=subprocess.PIPE, start_new_session=True
    )
    os.close(theirs)
    source = ours if on_terminal else process.stdout.fileno()  # type: ignore[union-attr]
    text = ""
    guard = threading.Timer(60, process.kill)
    guard.start()
    try:
        while "critical" not in text:
            text += os.read(source, 65_536).decode()
        process.send_signal(signal.SIGINT)
        while piece := _read(source):
            text += piece
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        os.close(ours)
        daemon.stop()
    assert ("\x1b[?1049h" in text, text.endswith("\x1b[?1049l")) == (on_terminal, on_terminal)
    assert "\x1b[3" not in text, "NO_COLOR"


def _read(source: int) -> str:
    try:
        return os.read(source, 65_536).decode()
    except OSError:  # a terminal whose other side has gone
        return ""
