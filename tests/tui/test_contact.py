"""Losing the daemon, waiting for it, and leaving in time."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from appliance.client import Client, StatusSnapshot
from appliance.paths import Paths
from tests.client import documents
from tests.client.stub_daemon import StubDaemon
from tests.tui.screens import against, running
from tui.app import ApplianceApp
from tui.picture import FixedDoor, export_svg

KEEPS_SERVING = "The appliance keeps serving "
ROOT = Path(__file__).parents[2]


async def test_a_lost_daemon_is_shown_over_the_dimmed_last_values(stub: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        stub.stop()
        on.clock.now += 4
        await on.poll()
        on.clock.now += 3
        await on.poll()
        assert "✖ daemon lost" in on.text
        assert "Lost contact 3.0 s ago, retrying. Start it" in on.text
        assert "Qwen2.5-32B-Instruct" in on.text
        assert on.app.view.dimmed


async def test_a_dead_daemons_engine_does_not_go_on_running(stub: StubDaemon, paths: Paths) -> None:
    async with against(paths, (140, 40)) as on:
        assert "─ ● ready · up 2 h 14 m ─" in on.text
        stub.stop()
        on.clock.now += 600
        await on.poll()
        assert "─ last seen ● ready · up 2 h 14 m ─" in on.text
        assert "● ready, last seen" in on.text
        stub.paths.daemon_file.unlink()
        on.clock.now += 70
        await on.poll()
        assert "Lost contact 1 m 10 s ago, retrying. Start it with: appliance up" in on.text
        assert "up 2 h 14 m" in on.text


async def test_contact_comes_back_by_itself(stub: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        stub.stop()
        await on.poll()
        stub.start()
        await on.poll()
        assert on.app.view.lost is None
        assert "Contact with the appliance is back." in on.text
        history = on.app.view.history.get("cpu")
        assert history == (62.0, None, 62.0)


async def test_without_a_daemon_it_says_what_to_do(paths: Paths) -> None:
    async with against(paths.make()) as on:
        assert "No appliance daemon is running." in on.text
        assert "Start it with: appliance up" in on.text


async def test_another_version_is_told(stub: StubDaemon, paths: Paths) -> None:
    stub.write_record(version="99.0")
    async with against(paths) as on:
        assert "The daemon has version 99.0" in on.text


async def test_a_silent_daemon_does_not_hold_up_keys_or_the_exit(stub: StubDaemon, paths: Paths) -> None:
    async with running(lambda: Client.connect(paths, timeout_s=30), (100, 30), first_poll=False) as on:
        stub.script.held.clear()
        asked = asyncio.create_task(on.app.poll_once())
        await on.press("question_mark")
        assert "Leave the UI" in on.text
        assert not asked.done()
        await on.press("escape")
        started = time.perf_counter()
        await on.pilot.press("q")
        asked.cancel()
    assert time.perf_counter() - started < 0.3 + 0.5  # the harness's own shutdown is part of it
    assert on.app.return_code == 0


async def test_it_polls_by_itself_and_stops_while_frozen() -> None:
    class Counting(FixedDoor):
        def __init__(self) -> None:
            super().__init__(documents.normal())
            self.asked = 0
            self.came = threading.Event()

        def status(self) -> StatusSnapshot:
            self.asked += 1
            self.came.set()
            return super().status()

    door = Counting()
    app = ApplianceApp(lambda: door)
    app._interval_s = 0.01
    async with app.run_test(size=(100, 30)) as pilot:
        while door.asked < 3:
            await pilot.pause(0.01)
        await pilot.press("space")
        await pilot.pause(0.05)
        frozen_at = door.asked
        await pilot.pause(0.1)
        assert door.asked == frozen_at
        await pilot.press("space")
        while door.asked == frozen_at:
            await pilot.pause(0.01)


def test_a_picture_is_made_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "dashboard.svg"
    export_svg(documents.normal(), file, now=documents.NOW)
    drawn = file.read_text(encoding="utf-8").replace("&#160;", " ")
    assert drawn.startswith("<svg")
    assert "Qwen2.5-32B-Instruct" in drawn


@pytest.mark.parametrize("options", [["--smoke"], ["--smoke", "--ascii"]])
def test_on_a_real_terminal_it_draws_leaves_and_says_that_it_keeps_serving(
    stub: StubDaemon, tmp_path: Path, options: list[str]
) -> None:
    code, written = _on_a_terminal(["-m", "tui", *options], tmp_path)
    assert code == 0
    text = written.decode("utf-8", errors="strict")
    assert "Qwen2.5-32B-Instruct" in text
    assert text.rstrip().endswith(f"{KEEPS_SERVING}at http://127.0.0.1:8417/v1. Stop it with: appliance down")
    drawn = text[text.index("\x1b[?1049h") : text.rindex("\x1b[?1049l")]
    assert drawn.isascii() == ("--ascii" in options)


def _on_a_terminal(arguments: list[str], home: Path) -> tuple[int, bytes]:
    """Run Python on a pseudo-terminal and collect what it writes."""
    leader, follower = pty.openpty()
    environment = os.environ | {"APPLIANCE_HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    child = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(follower)
    written = b""
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ready, _, _ = select.select([leader], [], [], 0.2)
            if ready:
                try:
                    written += os.read(leader, 65_536)
                except OSError:  # the other side is closed
                    break
            elif child.poll() is not None:
                break
        return child.wait(timeout=5), written
    finally:
        child.kill()
        os.close(leader)


def test_the_ui_loads_only_the_rooms_it_may() -> None:
    code = "import sys, tui.app; print(*(n for n in sys.modules if n.split('.')[0] == 'appliance'))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    rooms = {name.split(".")[1] for name in out.stdout.split() if "." in name}
    assert rooms <= {"client", "errors", "text", "units", "paths", "processes"}


def test_the_views_are_free_of_textual() -> None:
    code = (
        "import sys, tui.state, tui.views.engine, tui.views.gpu, tui.layout; print('textual' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "False"
