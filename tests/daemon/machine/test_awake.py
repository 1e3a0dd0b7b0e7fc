"""Awake while requests are here: real child processes behind a script named `systemd-inhibit`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.daemon.machine.awake import AwakeView, KeepAwake
from appliance.daemon.machine.demand import Pace
from appliance.daemon.machine.inhibitors.logind import Logind
from tests.daemon.machine.fake_inhibit import REFUSAL, REFUSAL_NEW, FakeProgram, install, until

SOON = Pace(after_s=0.05, linger_s=0.1)
ON, OFF = AwakeView(True), AwakeView(False)
HELD = AwakeView(True, True, "systemd-inhibit (sleep:idle)")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="child processes as POSIX has them")


@pytest.fixture
def inhibit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProgram:
    made = install(tmp_path / "bin", "systemd-inhibit")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return made


@asynccontextmanager
async def keeping(pace: Pace = SOON, *, on: bool = True, answer_s: float = 10.0) -> AsyncIterator[KeepAwake]:
    awake = KeepAwake(on, make=lambda: Logind(answer_s=answer_s), pace=pace)
    awake.start()
    try:
        yield awake
    finally:
        await awake.stop()


async def test_held_while_a_request_runs_and_let_go_after_it(
    inhibit: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_KEY", "secret")
    async with keeping() as awake:
        assert (awake.view, inhibit.starts) == (ON, [])
        awake.count(1)
        await until(lambda: awake.view == HELD)
        [arguments] = inhibit.starts
        assert arguments == (
            "--what=sleep:idle --mode=block --who=llama-appliance --why=A model answers a request cat"
        )
        assert "VLLM_KEY" not in inhibit.environment
        assert {"PATH", "LC_ALL"} <= inhibit.environment
        assert len(inhibit.alive) == 1
        awake.count(2)
        awake.count(1)
        awake.count(0)
        await until(lambda: awake.view == ON)
        assert (inhibit.alive, inhibit.ended) == ([], 1)
        awake.count(1)
        await until(lambda: awake.view == HELD)
        assert len(inhibit.pids) == 2
    assert (inhibit.alive, inhibit.ended) == ([], 2)


async def test_a_hundred_short_requests_in_a_row_need_one_process(inhibit: FakeProgram) -> None:
    async with keeping(Pace(after_s=0.05, linger_s=5)) as awake:
        for _ in range(100):
            awake.count(1)
            await asyncio.sleep(0.002)
            awake.count(0)
        awake.count(1)
        await until(lambda: awake.view == HELD)
        assert len(inhibit.starts) == 1


async def test_one_short_request_starts_nothing(inhibit: FakeProgram) -> None:
    """Nor does the time after it."""
    async with keeping(Pace(after_s=0.1, linger_s=5)) as awake:
        awake.count(1)
        await asyncio.sleep(0.01)
        awake.count(0)
        await asyncio.sleep(0.3)
        assert (awake.view, inhibit.starts) == (ON, [])


async def test_the_switch_works_while_it_is_held(inhibit: FakeProgram) -> None:
    async with keeping() as awake:
        awake.count(1)
        await until(lambda: awake.view == HELD)
        awake.use(False)
        await until(lambda: awake.view == OFF)
        assert inhibit.alive == []
        awake.use(True)
        await until(lambda: awake.view == HELD)
        awake.use(True)  # another setting of the governor: what is held stays
        await asyncio.sleep(0.05)
        assert (awake.view, len(inhibit.pids), len(inhibit.alive)) == (HELD, 2, 1)


async def test_switched_off_from_the_start(inhibit: FakeProgram) -> None:
    async with keeping(on=False) as awake:
        awake.count(1)
        await asyncio.sleep(0.2)
        assert (awake.view, inhibit.starts) == (OFF, [])


@pytest.mark.parametrize(
    "words", [REFUSAL, REFUSAL_NEW, "Failed to inhibit: Interactive authentication required."]
)
async def test_idle_alone_where_polkit_refuses_sleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    inhibit = install(tmp_path / "bin", "systemd-inhibit", mode="refuse-sleep", refusal=words)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    async with keeping() as awake:
        awake.count(1)
        await until(lambda: awake.view.held)
        assert awake.view.how == "systemd-inhibit (idle)"
        assert awake.view.why_not is not None
        assert words in awake.view.why_not
        awake.count(0)
        await until(lambda: awake.view == ON)
        awake.count(1)
        await until(lambda: awake.view.held)
        assert inhibit.whats == ["sleep:idle", "idle", "idle"], "sleep is not asked for each time"
        awake.use(True)
        awake.count(0)
        await until(lambda: awake.view == ON)
        inhibit.mode("holds")
        awake.count(1)
        await until(lambda: awake.view == HELD)
        assert inhibit.whats[3:] == ["sleep:idle"], "changed settings ask anew"


async def test_refused_altogether_nothing_more_is_tried_until_the_settings_change(
    inhibit: FakeProgram,
) -> None:
    inhibit.mode("refuse")
    async with keeping() as awake:
        awake.count(1)
        await until(lambda: awake.view.why_not)
        assert awake.view == AwakeView(True, why_not=f"systemd-inhibit: {REFUSAL}")
        for count in (0, 1, 0, 1):
            awake.count(count)
            await asyncio.sleep(0.07)
        assert inhibit.whats == ["sleep:idle", "idle"]
        inhibit.mode("holds")
        awake.use(True)
        await until(lambda: awake.view == HELD)
        assert len(inhibit.starts) == 3


async def test_without_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with keeping() as awake:
        awake.count(1)
        await until(lambda: awake.view.why_not)
        assert awake.view == AwakeView(True, why_not="systemd-inhibit is not installed here")


async def test_one_that_dies_is_started_again_with_more_time_each_time(inhibit: FakeProgram) -> None:
    async with keeping() as awake:
        awake.count(1)
        await until(lambda: awake.view == HELD)
        inhibit.mode("dies")
        os.kill(inhibit.alive[0], signal.SIGKILL)
        await until(lambda: not awake.view.held)
        assert awake.view.why_not == "systemd-inhibit (sleep:idle): ended by signal 9"
        assert len(inhibit.starts) == 1, "not at once"
        inhibit.mode("holds")
        await until(lambda: awake.view == HELD)
        assert (len(inhibit.starts), len(inhibit.alive)) == (2, 1)
    assert inhibit.alive == []


async def test_one_that_does_not_answer_is_ended(inhibit: FakeProgram) -> None:
    inhibit.mode("silent")
    async with keeping(answer_s=0.1) as awake:
        awake.count(1)
        await until(lambda: awake.view.why_not)
        assert awake.view == AwakeView(True, why_not="systemd-inhibit does not answer")
        assert (len(inhibit.starts), inhibit.alive) == (1, [])


async def test_a_stop_while_it_is_asked_leaves_nothing(inhibit: FakeProgram) -> None:
    inhibit.mode("silent")
    async with keeping() as awake:
        awake.count(1)
        await until(lambda: inhibit.alive)
    assert inhibit.alive == []


async def test_a_stop_at_any_moment_of_a_start(inhibit: FakeProgram) -> None:
    """A cancelled spawn of asyncio can wait for ever."""
    for turns in range(40):
        async with asyncio.timeout(10), keeping(Pace(0, 5)) as awake:
            awake.count(1)
            for _ in range(turns):
                await asyncio.sleep(0)
    await until(lambda: not inhibit.alive, limit_s=2)


DAEMON = """
import asyncio
from appliance.daemon.machine.awake import KeepAwake
from appliance.daemon.machine.demand import Pace

async def run() -> None:
    awake = KeepAwake(True, pace=Pace(0.01, 5))
    awake.start()
    awake.count(1)
    await asyncio.Event().wait()

asyncio.run(run())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the inhibitor of Linux")
async def test_it_ends_with_a_daemon_that_is_killed(inhibit: FakeProgram) -> None:
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON], start_new_session=True)  # noqa: ASYNC220
    try:
        await until(lambda: len(inhibit.alive) == 1)
        await until(lambda: b"cat" in _children(inhibit.alive[0]))
    finally:
        daemon.kill()
        daemon.wait()
    await until(lambda: not inhibit.alive, limit_s=1.0)
    assert inhibit.ended == 1, "its command ended, and it with it"


def _children(pid: int) -> bytes:
    """Names of the children of a process."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return b" ".join(Path(f"/proc/{one}/comm").read_bytes().strip() for one in found)


@pytest.mark.skipif(not Path("/usr/bin/systemd-inhibit").exists(), reason="no systemd-inhibit here")
async def test_the_real_one_without_a_bus_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
    async with keeping() as awake:
        awake.count(1)
        await until(lambda: awake.view.why_not)
        assert awake.view.held is False
        assert awake.view.why_not is not None
        assert awake.view.why_not.startswith("systemd-inhibit: Failed to connect to")
