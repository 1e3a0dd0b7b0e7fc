"""An engine that outgrew its plan is started afresh: rarely, only when idle, never on a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.daemon.machine import drift
from appliance.daemon.machine.drift import AT_MOST_EVERY_S, LEAST, LOOKS, Drift, Memory, look
from appliance.daemon.watching import PlanWatch
from appliance.monitor import MonitorSnapshot
from appliance.paths import Paths
from appliance.planning import MemoryPlan
from appliance.units import GIB, MIB
from tests.daemon.house import SERVED
from tests.daemon.machine.hall import ON_GPU, hall
from tests.engines.fake_engine import Script
from tests.engines.launches import plan as written

CARD = MemoryPlan("CUDA0", 8 * GIB, 7 * GIB, 512 * MIB, 3 * GIB, GIB, 0, 0, 0)
RAM = MemoryPlan("Host", 32 * GIB, 24 * GIB, 512 * MIB, 2 * GIB, 0, 500 * MIB, 500 * MIB, 0)
PLAN = replace(written(gpu_layers=31), devices=(CARD,), host=RAM)
AFTER_LOAD: Mapping[str, int | None] = {"Host": 900 * MIB, "CUDA0": 4 * GIB}


def see(
    held: Mapping[str, int | None], times: int, memory: Memory, *, spare: int = 0, now: float = 1000.0
) -> tuple[Memory, list[Drift]]:
    told = []
    for _ in range(times):
        memory, found = look(PLAN, held, {"Host": spare}, now, memory)
        told += [found] if found is not None else []
        now += 10
    return memory, told


def begun() -> Memory:
    """With a baseline."""
    return see(AFTER_LOAD, 1, Memory())[0]


def test_ram_that_grew_is_told_once_it_has_lasted() -> None:
    grown = {**AFTER_LOAD, "Host": 2 * GIB}
    memory, told = see(grown, LOOKS - 1, begun())
    assert told == []
    _, told = see(grown, 1, memory)
    assert told == [Drift("Host", 2 * GIB, 1000 * MIB)]


def test_the_gpu_counts_as_well() -> None:
    _, told = see({**AFTER_LOAD, "CUDA0": 5 * GIB + 1}, LOOKS, begun())
    assert [one.place for one in told] == ["CUDA0"]
    _, told = see({**AFTER_LOAD, "CUDA0": 5 * GIB}, 10, begun())
    assert told == [], "a quarter of the plan is no drift"


def test_weights_that_are_a_mapped_file_are_not_the_engines_own() -> None:
    grown = {**AFTER_LOAD, "Host": 2 * GIB}
    mapped = replace(PLAN, flags=(*PLAN.flags, "--no-mmap"))
    memory = begun()
    for _ in range(LOOKS):
        memory, found = look(mapped, grown, {}, 1000.0, memory)
        assert found is None, "without a mapping they are, and 3 GiB were planned"


def test_prompts_that_left_their_slots_are_planned() -> None:
    grown = {**AFTER_LOAD, "Host": 2 * GIB}
    assert see(grown, 10, begun(), spare=GIB)[1] == []
    assert drift.spare_of(1024) == {"Host": GIB}
    assert drift.spare_of(None)["Host"] == 8 * GIB, "as llama-server has it"


@pytest.mark.parametrize("held", [{}, {"Host": None, "CUDA0": None}, {"Vulkan0": 64 * GIB}])
def test_what_is_unknown_drifts_nowhere(held: Mapping[str, int | None]) -> None:
    assert see(held, 10, begun())[1] == []
    assert see({"Host": 64 * GIB}, 10, Memory())[1] == [], (
        "the first figure is what the others are held against"
    )


def test_a_request_in_between_begins_it_anew() -> None:
    grown, memory = {**AFTER_LOAD, "Host": 2 * GIB}, begun()
    for _ in range(5):
        memory, told = see(grown, LOOKS - 1, memory)
        assert told == []
        memory = drift.used(memory)


@given(st.lists(st.booleans(), max_size=400))
def test_it_never_recycles_more_than_once_in_ten_minutes(grown: list[bool]) -> None:
    memory, now = begun(), 0.0
    recycled = []
    for big in grown:
        memory, found = look(PLAN, {"Host": 8 * GIB if big else 900 * MIB}, {}, now, memory)
        if found is not None:
            recycled.append(now)
            memory = drift.loaded(drift.recycled(memory, now))
            memory = replace(memory, baseline={"Host": 900 * MIB})
        now += 10
    assert all(later - one >= AT_MOST_EVERY_S for one, later in pairwise(recycled))


@given(st.integers(0, 64 * GIB), st.integers(0, 64 * GIB))
def test_less_than_the_least_is_never_told(first: int, more: int) -> None:
    memory, _ = see({"Host": first}, 1, Memory())
    assert see({"Host": first + more % LEAST}, LOOKS, memory)[1] == []


async def test_an_idle_engine_that_grew_is_started_afresh_once_with_its_prompts(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, Script(load_lines=ON_GPU)) as there:
        ram, clock = [300 * MIB], [1000.0]
        seat = there.home.pool.seat(there.home.ref)
        seat.watch = watch = PlanWatch(
            seat.serving, there.home.lessons, monitor=MonitorSnapshot, quiet=lambda: seat.wanted == 0,
            ram=lambda _pid: ram[0], clock=lambda: clock[0],
        )  # fmt: skip

        async def pass_by(seconds: float) -> None:
            for _ in range(int(seconds // 2)):
                clock[0] += 2
                await watch.look()

        async def use(times: int) -> None:
            for _ in range(times):
                with there.home.local.busy(SERVED):
                    pass

        await pass_by(60)
        ram[0] = 40 * GIB
        await pass_by(60)
        assert there.starts() == 1, "before the first requests nothing is held against it"
        ram[0] = 300 * MIB
        await use(3)
        await pass_by(30)
        ram[0] = 40 * GIB
        with there.home.local.busy(SERVED):
            await pass_by(120)
        assert there.starts() == 1, "not under a request"
        await pass_by(60)
        assert there.starts() == 2
        assert there.hooks.calls == ["started", "stopping", "started"], "its prompts go with it"
        (note,) = there.notes()
        assert (note.code, "of RAM" in note.detail) == ("recycled", True)
        await use(3)
        ram[0] = 300 * MIB
        await pass_by(30)
        ram[0] = 40 * GIB
        await pass_by(AT_MOST_EVERY_S - 200)
        assert there.starts() == 2, "not again so soon"
