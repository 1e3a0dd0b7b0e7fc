"""A GPU goes away under a model: said once, served without, no loop; and it comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.daemon.machine.losses import TRY_EVERY_S
from appliance.errors import DeviceLost
from appliance.hardware import detect_safely
from appliance.paths import Paths
from appliance.units import MIB
from tests.daemon.machine.hall import ON_GPU, hall
from tests.engines.fake_engine import Script
from tests.nvml_stub.machine import FakeMachine

DIES = Script(load_lines=ON_GPU, die_serving=-6)
"""On the GPU, until the first request."""
FINE = Script()
"""On the CPU."""
FINE_THERE = Script(load_lines=ON_GPU)


async def test_a_gpu_that_falls_off_the_bus_under_load_leaves_the_model_on_the_cpu_and_says_so_once(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, DIES, FINE) as there:
        assert there.layers() == 31
        assert there.degraded() == ()
        there.lose()
        there.home.told.clear()
        await there.crash()
        assert there.home.serving.snapshot.state == "ready"
        assert there.layers() == 0
        assert there.starts() == 2, "none on the device that is gone"
        assert there.degraded() == ("cpu_fallback",)
        (note,) = there.notes()
        assert note.code == "gpu_lost"
        assert "Some GPU: It is not on the bus any more." in note.detail
        assert "restart the machine" in (note.todo or "")
        assert "failed" not in there.home.states(), "who asks meanwhile waits"
        assert await there.home.chat() == 200


async def test_with_accept_cpu_answers_carry_no_code_and_the_note_stays(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, DIES, FINE, accept_cpu=True) as there:
        there.lose()
        await there.crash()
        assert there.degraded() == ()
        assert [note.code for note in there.notes()] == ["gpu_lost"]


async def test_a_gpu_that_is_back_gets_its_model_back_when_that_is_idle(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = FINE_THERE
    async with hall(paths, smollm2_path, monkeypatch, DIES, FINE, tries, FINE_THERE) as there:
        there.lose()
        await there.crash()
        await there.wait(60)
        assert there.starts() == 2, "nothing is tried while it is gone"
        there.give_back()
        seat = there.home.pool.seat(there.home.ref)
        with seat.wants():
            await there.wait(60)
            assert (there.starts(), there.layers()) == (3, 0), "tried, and not moved under a request"
        await there.wait(10)
        await there.ready()
        assert (there.starts(), there.layers(), there.degraded()) == (4, 31, ())
        assert [note.code for note in there.notes()] == ["gpu_back"]
        assert there.hooks.calls[-2:] == ["stopping", "started"], "its prompts are saved before"
        await there.wait(120)
        assert there.starts() == 4


async def test_a_gpu_on_which_nothing_starts_any_more_is_left_alone_after_one_try(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Script(die_at_start=-6)
    async with hall(paths, smollm2_path, monkeypatch, DIES, broken, FINE, broken, FINE_THERE) as there:
        await there.crash()
        assert there.home.serving.snapshot.state == "ready"
        assert (there.starts(), there.layers()) == (3, 0), "one start on it, then one without it"
        assert there.degraded() == ("cpu_fallback",)
        (note,) = there.notes()
        assert (note.code, "fails on it" in note.detail) == ("gpu_lost", True)
        await there.wait(TRY_EVERY_S - 20)
        assert there.starts() == 3
        await there.wait(LONGEST)
        assert (there.starts(), there.layers()) == (4, 0), "the try failed, and the model stays where it is"
        await there.wait(TRY_EVERY_S - LONGEST)
        assert there.starts() == 4


LONGEST = 300.0
"""Between two looks."""


async def test_a_person_who_restarts_the_model_has_everything_tried_again(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Script(die_at_start=-6)
    async with hall(paths, smollm2_path, monkeypatch, DIES, broken, FINE, FINE_THERE) as there:
        await there.crash()
        assert there.layers() == 0
        await there.home.pool.restart()
        assert (there.layers(), there.degraded(), there.notes()) == (31, (), [])


async def test_when_that_fails_the_model_is_on_the_cpu_again(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Script(die_at_start=-6)
    async with hall(paths, smollm2_path, monkeypatch, DIES, broken, FINE, broken, FINE) as there:
        await there.crash()
        await there.home.pool.restart()
        assert (there.starts(), there.layers(), there.degraded()) == (5, 0, ("cpu_fallback",))
        assert [note.code for note in there.notes()] == ["gpu_lost"]


async def test_a_load_that_the_driver_ends_goes_to_the_cpu_at_once(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Script(load_lines=("ggml_vulkan: vk::Device::waitForFences: ErrorDeviceLost",), die_at_start=1)
    lost = replace(said, die_at_start=None, die_loading=1)
    async with hall(paths, smollm2_path, monkeypatch, lost, FINE) as there:
        assert (there.starts(), there.layers(), there.degraded()) == (2, 0, ("cpu_fallback",))
        assert [note.code for note in there.notes()] == ["gpu_lost"]


async def test_a_load_that_fails_for_another_reason_is_not_blamed_on_the_gpu(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, Script(die_loading=1), FINE, load=False) as there:
        with pytest.raises(Exception, match="ended while loading"):
            await there.home.serving.load(there.home.ref)
        assert there.starts() == 1


async def test_without_room_on_the_cpu_the_model_fails_with_that_one_message_and_returns_with_the_gpu(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, DIES, FINE_THERE) as there:
        there.lose(ram_total=512 * MIB, ram_available=40 * MIB)
        await there.crash()
        now = there.home.serving.snapshot
        assert now.state == "failed"
        assert isinstance(now.error, DeviceLost)
        assert now.error.message == "Some GPU: It is not on the bus any more."
        assert "smol:Q4_1 is not served" in (now.error.cause or "")
        assert "restart the machine" in (now.error.hint or "")
        there.give_back()
        await there.wait(60)
        await there.ready()
        assert (there.home.serving.snapshot.state, there.layers()) == ("ready", 31)


async def test_a_model_that_is_loaded_while_the_gpu_is_lost_is_told_so_too(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, FINE_THERE, FINE) as there:
        await there.home.serving.unload()
        there.lose()
        await there.home.serving.load(there.home.ref)
        assert there.degraded() == ("cpu_fallback",), "a machine that lost its GPU is no machine without one"
        assert [note.code for note in there.notes()] == ["gpu_lost"]


@pytest.mark.parametrize(
    ("change", "words", "todo"),
    [
        ({"err__nvmlInitWithFlags": 18}, "was updated", "Restart the machine"),
        ({"err__nvmlInitWithFlags": 9}, "not loaded", "modprobe"),
        ({"err__nvmlDeviceGetHandleByIndex_v2": 15}, "fell off the bus", "Xid"),
    ],
)
async def test_what_the_driver_says_is_the_message(
    paths: Paths,
    smollm2_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    laptop: FakeMachine,
    change: dict[str, int],
    words: str,
    todo: str,
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, DIES, FINE) as there:
        laptop.set(**change)
        found = await detect_safely(30, env=laptop.env)
        there.lose(gpus=found.gpus, trouble=found.trouble)
        await there.crash()
        assert there.degraded() == ("cpu_fallback",)
        (note,) = there.notes()
        assert (note.code, words in note.detail, todo in (note.todo or "")) == ("gpu_lost", True, True)
