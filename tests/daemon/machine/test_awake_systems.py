"""When the machine is to be held, as a table; and the ways of macOS and Windows."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from appliance.daemon.machine import inhibitors
from appliance.daemon.machine.awake import LONG_S, TRIES, AwakeView, KeepAwake
from appliance.daemon.machine.demand import Demand, Pace
from appliance.daemon.machine.inhibitors import Hold, NotHeld, caffeinate, logind, windows
from tests.daemon.machine.fake_inhibit import install, until


def test_a_demand_over_time() -> None:
    demand = Demand(Pace(after_s=1, linger_s=5))
    assert (demand.wanted(0, held=False), demand.due(0, held=False)) == (False, None)
    demand.count(1, 10)
    assert (demand.wanted(10.9, held=False), demand.due(10.5, held=False)) == (False, 0.5)
    assert (demand.wanted(11, held=False), demand.due(11, held=True)) == (True, None)
    demand.count(2, 12)
    demand.count(0, 20)
    assert (demand.wanted(24.9, held=True), demand.due(20, held=True)) == (True, 5)
    assert (demand.wanted(25, held=True), demand.wanted(21, held=False)) == (False, False)
    demand.count(1, 20.5)
    assert demand.wanted(20.5, held=False), "the same piece of work"
    demand.count(0, 21)
    demand.count(1, 23)
    assert (demand.wanted(23, held=False), demand.wanted(23, held=True)) == (False, True), "after a pause"
    assert demand.due(23, held=False) == 1


class Losing:
    """An inhibitor whose holds are lost at once, or that is never given one."""

    how, but = "losing", None

    def __init__(self, *, takes: bool) -> None:
        self.takes = takes
        self.asked = 0

    async def take(self) -> Hold:
        self.asked += 1
        if not self.takes:
            raise NotHeld("not now", lasting=False)
        return self

    async def lost(self) -> str:
        return "lost at once"

    async def release(self) -> None:
        pass


@pytest.mark.parametrize("takes", [True, False])
async def test_tries_are_bounded(takes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.daemon.machine.awake.FIRST_S", 0.001)
    losing = Losing(takes=takes)
    awake = KeepAwake(True, make=lambda: losing, pace=Pace(0, 0))
    awake.start()
    awake.count(1)
    await until(lambda: losing.asked == TRIES)
    await asyncio.sleep(0.2)
    assert losing.asked == TRIES == 6
    assert LONG_S == 600
    assert awake.view == AwakeView(True, why_not="lost at once" if takes else "not now")
    await awake.stop()


def test_each_system_has_its_own() -> None:
    assert isinstance(inhibitors.inhibitor("linux"), logind.Logind)
    assert isinstance(inhibitors.inhibitor("darwin"), caffeinate.Caffeinate)
    assert isinstance(inhibitors.inhibitor("win32"), windows.ExecutionState)


async def test_a_system_without_any() -> None:
    with pytest.raises(NotHeld) as caught:
        await inhibitors.inhibitor("freebsd14").take()
    assert (caught.value.lasting, "freebsd14" in caught.value.why) == (True, True)


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
async def test_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = install(tmp_path / "bin", "caffeinate")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    awake = KeepAwake(True, make=lambda: inhibitors.inhibitor("darwin"), pace=Pace(0.01, 0.1))
    awake.start()
    awake.count(1)
    await until(lambda: awake.view.held and len(program.alive) == 1)
    assert program.starts == [f"-i -w {os.getpid()}"]
    assert awake.view == AwakeView(True, True, "caffeinate -i")
    awake.count(0)
    await until(lambda: awake.view == AwakeView(True))
    assert program.alive == []
    await awake.stop()


async def test_macos_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotHeld, match="caffeinate is not found"):
        await inhibitors.inhibitor("darwin").take()


class States:
    """The function of Windows: who called it with what."""

    def __init__(self, answer: int = windows.ES_CONTINUOUS) -> None:
        self.answer = answer
        self.calls: list[tuple[int, int]] = []

    def __call__(self, flags: int) -> int:
        self.calls.append((threading.get_ident(), flags))
        return self.answer


async def test_windows_on_one_thread_that_lives_as_long_as_the_hold() -> None:
    states = States()
    way = windows.ExecutionState(lambda: states)
    awake = KeepAwake(True, make=lambda: way, pace=Pace(0.01, 0.05))
    awake.start()
    awake.count(1)
    await until(lambda: awake.view.held)
    assert awake.view == AwakeView(True, True, "SetThreadExecutionState")
    [(thread, flags)] = states.calls
    assert flags == 0x80000001
    assert thread in {one.ident for one in threading.enumerate()}, "a state ends with its thread"
    assert thread != threading.get_ident()
    awake.count(0)
    await until(lambda: awake.view == AwakeView(True))
    assert states.calls == [(thread, 0x80000001), (thread, 0x80000000)]
    await awake.stop()
    await until(lambda: "keep awake" not in {one.name for one in threading.enumerate()})


async def test_windows_refuses() -> None:
    with pytest.raises(NotHeld, match="SetThreadExecutionState failed"):
        await windows.ExecutionState(lambda: States(0)).take()


@pytest.mark.skipif(os.name == "nt", reason="it is there")
async def test_the_function_of_windows_is_not_looked_for_elsewhere() -> None:
    with pytest.raises(NotHeld, match="is not here"):
        await inhibitors.inhibitor("win32").take()
