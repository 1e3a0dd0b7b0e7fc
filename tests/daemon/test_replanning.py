"""When other programs take a GPU's memory while the engine is idle: rarely, and only where a plan helps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.daemon.replanning import (
    ASK_AGAIN_S,
    AT_MOST_EVERY_S,
    LOW_FOR_S,
    DeviceNow,
    Memory,
    Pressure,
    is_better,
    loaded,
    reloaded,
    step,
)
from appliance.planning import MemoryPlan, Plan
from appliance.units import GIB, MIB
from tests.engines.launches import plan as written

CARD = MemoryPlan("CUDA0", 8 * GIB, 7 * GIB, 512 * MIB, 4 * GIB, GIB, 500 * MIB, 350 * MIB, 0)
PLAN = replace(written(gpu_layers=31), devices=(CARD,))
ROOM = {"CUDA0": DeviceNow(600 * MIB, 5900 * MIB)}
"""Just loaded."""
TAKEN = {"CUDA0": DeviceNow(200 * MIB, 5900 * MIB)}
"""Another program took 400 MiB: less than half of the reserve is left."""


class Watch:
    """Looks with one second between them."""

    def __init__(self, plan: Plan = PLAN) -> None:
        self.plan, self.memory, self.now = plan, Memory(), 100.0
        self.told: list[Pressure] = []

    def see(self, devices: dict[str, DeviceNow], seconds: float, *, idle: bool = True) -> int:
        """How often pressure was told in this time."""
        before, end = len(self.told), self.now + seconds
        while self.now < end:
            self.memory, pressed = step(self.plan, devices, idle, self.now, self.memory)
            self.told += [pressed] if pressed is not None else []
            self.now += 1
        return len(self.told) - before


def test_memory_that_others_took_is_told_once_it_has_lasted() -> None:
    watch = Watch()
    assert watch.see(ROOM, 60) == 0
    assert watch.see(TAKEN, LOW_FOR_S) == 0
    assert watch.see(TAKEN, 2) == 1
    assert watch.told == [Pressure("CUDA0", 200 * MIB, 400 * MIB)]


def test_a_program_that_comes_and_goes_is_left_alone() -> None:
    watch = Watch()
    for _ in range(10):
        assert watch.see(ROOM, 5) == 0
        assert watch.see(TAKEN, LOW_FOR_S - 2) == 0


def test_nothing_is_reloaded_under_a_request() -> None:
    watch = Watch()
    watch.see(ROOM, 5)
    assert watch.see(TAKEN, 300, idle=False) == 0
    assert watch.see(TAKEN, LOW_FOR_S) == 0, "idle time counts from the end of the request"
    assert watch.see(TAKEN, 2) == 1


@pytest.mark.parametrize(
    "now",
    [
        {},
        {"CUDA0": DeviceNow(None, None)},
        {"CUDA0": DeviceNow(None, 5900 * MIB)},
        {"Vulkan0": DeviceNow(1, 1)},
    ],
)
def test_where_the_driver_does_not_tell_nothing_happens(now: dict[str, DeviceNow]) -> None:
    watch = Watch()
    assert watch.see(now, 300) == 0
    watch.see(ROOM, 5)
    assert watch.see(now, 300) == 0


def test_what_the_engine_itself_took_is_nobody_elses() -> None:
    watch = Watch()
    watch.see(ROOM, 5)
    assert watch.see({"CUDA0": DeviceNow(200 * MIB, 6300 * MIB)}, 300) == 0


def test_a_card_that_was_full_from_the_load_on_is_no_news() -> None:
    watch = Watch()
    assert watch.see(TAKEN, 300) == 0, (
        "the driver needed more than planned; another plan would know no better"
    )


def test_memory_that_is_ram_is_left_to_the_system() -> None:
    watch = Watch(replace(PLAN, shared=("CUDA0",)))
    watch.see(ROOM, 5)
    assert watch.see(TAKEN, 300) == 0


def test_it_never_thrashes() -> None:
    watch = Watch()
    reloads = 0
    for _ in range(6):  # an hour in which another program takes memory right after every load
        watch.memory = loaded(watch.memory)
        watch.see(ROOM, 5)
        if watch.see(TAKEN, AT_MOST_EVERY_S - 5):
            reloads += 1
            watch.memory = reloaded(watch.memory, watch.now)
    assert 1 <= reloads <= 6
    watch.memory = loaded(reloaded(watch.memory, watch.now))
    watch.see(ROOM, 1)
    assert watch.see(TAKEN, AT_MOST_EVERY_S - 2) == 0
    assert watch.see(TAKEN, LOW_FOR_S) == 1


def test_a_plan_for_what_is_free_is_not_made_all_the_time() -> None:
    watch = Watch()
    watch.see(ROOM, 5)
    assert watch.see(TAKEN, LOW_FOR_S + 4 * ASK_AGAIN_S) == 4


def test_only_a_plan_that_leaves_more_room_is_worth_a_reload() -> None:
    smaller = replace(PLAN, devices=(replace(CARD, kv=512 * MIB),), flags=("-c", "1"))
    assert is_better(PLAN, smaller, "CUDA0")
    assert is_better(PLAN, replace(smaller, devices=()), "CUDA0")
    assert not is_better(PLAN, PLAN, "CUDA0")
    assert not is_better(PLAN, replace(smaller, fits=False), "CUDA0")
    assert not is_better(
        PLAN, replace(PLAN, devices=(replace(CARD, kv=2 * GIB),), flags=("-c", "1")), "CUDA0"
    )
