"""After a suspend: who works goes on, who does not is started again, and requests wait meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.daemon.machine import sleep
from appliance.daemon.machine.sleep import JUMPED_S, SLEPT_S, Clocks, slept_s
from appliance.daemon.machine.watch import MachineWatch
from appliance.paths import Paths
from tests.daemon.house import SERVED
from tests.daemon.machine.hall import ON_GPU, hall, hang
from tests.engines.fake_engine import Script

FINE = Script(load_lines=ON_GPU)
HANGS = Script(load_lines=ON_GPU, hang_after_tokens=1)
_SECONDS = st.floats(min_value=0, max_value=1e6)


@given(_SECONDS, _SECONDS, _SECONDS, st.floats(min_value=SLEPT_S + 0.1, max_value=1e6))
def test_the_time_between_two_kernel_clocks_is_the_sleep(
    on: float, still: float, passed: float, slept: float
) -> None:
    before = Clocks(on, still)
    now = Clocks(on + passed + slept, still + passed)
    assert slept_s(before, now, 2.0) == pytest.approx(slept, abs=0.01)
    assert slept_s(before, Clocks(on + passed, still + passed), 2.0) == 0.0


@pytest.mark.parametrize(
    ("wall", "slept"), [(2.0, False), (30.0, False), (JUMPED_S + 1, False), (3600.0, True), (-3600.0, False)]
)
def test_a_wall_clock_tells_only_by_a_large_jump_forward(wall: float, slept: bool) -> None:
    gap = slept_s(Clocks(1000.0, None), Clocks(1000.0 + wall, None), 2.0)
    assert (gap > 0) == slept


def test_this_machine_has_not_slept_between_two_looks() -> None:
    before = sleep.read()
    assert slept_s(before, sleep.read(), 0.0) == 0.0


class Lid:
    """Two clocks; the machine may be suspended between two looks."""

    def __init__(self) -> None:
        self.clocks = Clocks(100.0, 100.0)

    def close(self, seconds: float) -> None:
        assert self.clocks.still is not None
        self.clocks = Clocks(self.clocks.on + seconds + 2, self.clocks.still + 2)

    def read(self) -> Clocks:
        return self.clocks


async def test_a_healthy_engine_goes_on_and_is_not_started_again(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, FINE) as there:
        lid = Lid()
        watch = MachineWatch(there.home.pool, there.gpus, paths, clocks=lid.read, prove_s=60.0)
        there.home.told.clear()
        lid.close(0.0)
        await watch.look()
        assert there.home.told == [], "a machine that did not sleep asks nobody"
        lid.close(3600.0)
        await watch.look()
        assert there.home.states() == ["starting", "ready"], "requests wait until it has shown that it works"
        assert (there.starts(), there.notes()) == (1, [])
        assert there.hooks.calls == ["started"]
        assert await there.home.chat() == 200


async def test_an_engine_that_does_not_work_any_more_is_started_again_and_requests_wait(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, HANGS, FINE) as there:
        await hang(there.home)
        before = there.home.serving.endpoint
        there.home.told.clear()
        resumed = asyncio.create_task(there.watch.resumed(3600.0))
        await there.home.until(lambda now: now.state == "starting")
        answer = await there.home.local.ready(SERVED)
        await resumed
        assert before is not None
        assert answer is not None
        assert answer.key != before.key, "who asked meanwhile got the new engine"
        assert there.home.states() == ["starting", "loading", "ready"]
        assert there.starts() == 2
        assert there.hooks.calls == ["started", "started"], "a broken engine is asked for no prompts"
        (note,) = there.notes()
        assert (note.code, "1 h" in note.detail) == ("resumed", True)
        assert await there.home.chat() == 200


async def test_a_gpu_that_did_not_wake_up_with_the_machine_is_done_without(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, HANGS, Script()) as there:
        await hang(there.home)
        there.lose()
        await there.watch.resumed(60.0)
        assert there.home.serving.snapshot.state == "ready"
        assert (there.layers(), there.degraded()) == (0, ("cpu_fallback",))
        assert {note.code for note in there.notes()} == {"resumed", "gpu_lost"}


async def test_models_that_are_not_loaded_are_left_alone(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, Script(), load=False) as there:
        await there.watch.resumed(3600.0)
        assert (there.starts(), there.home.serving.snapshot.state) == (0, "absent")
