"""A call that hangs or crashes is named, and costs the other sensors nothing."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from appliance.hardware.sensors import Sample
from appliance.monitor import Monitor
from appliance.monitor.child.watchdog import HUNG, Trace, Watchdog
from appliance.monitor.culprits import Culprits
from appliance.monitor.process import ChildEnded, SensorChild
from appliance.monitor.wire import parse, parse_hung
from appliance.settings import Governor
from tests.monitor.conftest import FAST, until
from tests.nvml_stub.machine import FakeMachine

_GPU = "GPU-00000000-0000-0000-0000-000000000000"
_FAN = f"nvmlDeviceGetFanSpeed {_GPU}"


async def first_sample(child: SensorChild) -> Sample:
    """Raises ChildEnded."""
    while True:
        raw = await child.line(20)
        sample = parse(raw) if raw is not None else None
        if sample is not None:
            return sample


async def life(
    laptop: FakeMachine, skip: dict[str, float], deadline_s: float = 0.3
) -> tuple[int, str | None]:
    """A child until it ends: its exit code, and the call it ended in."""
    child = await SensorChild.spawn(laptop.env, skip, deadline_s)
    try:
        child.command("interval 0.02")
        for _ in range(1000):
            await first_sample(child)
    except ChildEnded:
        pass
    code = await child.end()
    assert code is not None
    return code, child.blame()


async def test_a_call_that_hangs_ends_the_child_and_is_named(laptop: FakeMachine) -> None:
    laptop.set(hang__nvmlDeviceGetFanSpeed=1)
    began = time.monotonic()
    assert await life(laptop, {}) == (HUNG, _FAN)
    assert time.monotonic() - began < 10


async def test_a_call_that_crashes_the_child_is_named(laptop: FakeMachine) -> None:
    laptop.set(crash__nvmlDeviceGetFanSpeed=1)
    assert await life(laptop, {}) == (-6, _FAN)


async def test_a_call_on_one_of_two_devices_is_named_with_its_device(laptop: FakeMachine) -> None:
    laptop.set(count=2, crash__nvmlDeviceGetPowerUsage__1=1)
    assert await life(laptop, {}) == (-6, f"nvmlDeviceGetPowerUsage {_GPU[:-1]}1")


@pytest.mark.parametrize(
    "symbol", ["nvmlInitWithFlags", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMemoryInfo_v2"]
)
async def test_the_start_the_handle_and_both_versions_are_told_apart(
    laptop: FakeMachine, symbol: str
) -> None:
    laptop.set(**{f"crash__{symbol}": 1})
    _, blame = await life(laptop, {})
    assert (
        blame
        == {
            "nvmlInitWithFlags": "nvmlInitWithFlags",
            "nvmlDeviceGetHandleByIndex_v2": "nvmlDeviceGetHandleByIndex #0",
            "nvmlDeviceGetMemoryInfo_v2": f"nvmlDeviceGetMemoryInfo_v2 {_GPU}",
        }[symbol]
    )


async def test_a_slow_start_is_no_hang(laptop: FakeMachine) -> None:
    laptop.set(delay__nvmlInitWithFlags=900_000, delay__nvmlDeviceGetHandleByIndex_v2=900_000)
    child = await SensorChild.spawn(laptop.env, {}, 0.3)
    sample = await first_sample(child)
    await child.end()
    assert sample.gpus[0].temperature == 60


async def test_what_is_left_out_costs_the_other_sensors_nothing_and_is_tried_again(
    laptop: FakeMachine,
) -> None:
    logged = laptop.logging()
    logged.set(fan=40, count=2)
    child = await SensorChild.spawn(logged.env, {_FAN: 1.5})
    try:
        child.command("interval 0.02")
        sample = await first_sample(child)
        assert sample.skipped == (_FAN,)
        assert [(gpu.fan, gpu.temperature) for gpu in sample.gpus] == [(None, 60), (40, 60)]
        assert "nvmlDeviceGetFanSpeed 0" not in logged.calls()
        later = await first_sample(child)
        while later.skipped:
            later = await first_sample(child)
        assert [gpu.fan for gpu in (await first_sample(child)).gpus] == [40, 40]
    finally:
        await child.end()


async def test_without_the_start_of_nvml_all_else_is_read(laptop: FakeMachine) -> None:
    logged = laptop.logging()
    child = await SensorChild.spawn(logged.env, {"nvmlInitWithFlags": 60.0})
    sample = await first_sample(child)
    await child.end()
    assert sample.ram_available is not None
    assert (sample.gpus, logged.calls()) == ((), [])
    assert sample.trouble is not None
    assert "gives no answer" in sample.trouble


async def test_a_child_that_ends_between_two_calls_has_nothing_to_blame(laptop: FakeMachine) -> None:
    child = await SensorChild.spawn(laptop.env, {})
    child.command("interval 60")
    await first_sample(child)
    assert child.blame() is None
    assert await child.end() == 0
    assert child.blame() is None


async def test_the_monitor_goes_on_without_a_call_that_hangs_each_time(laptop: FakeMachine) -> None:
    laptop.set(hang__nvmlDeviceGetFanSpeed=1, temp=63)
    monitor = Monitor(Governor(), interval_s=0.05, timing=FAST, env=laptop.env)
    monitor.set_active(True)
    await monitor.start()
    try:
        snapshot = await until(monitor, lambda s: bool(s.gpus) and s.gpus[0].temperature == 63)
    finally:
        await monitor.stop()
    assert snapshot.restarts == 2


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_the_call_that_runs_can_be_overdue() -> None:
    clock = Clock()
    dog = Watchdog(Trace(None), deadline_s=3, slow_s=15, clock=clock)
    dog.began("nvmlDeviceGetName", "GPU-1")
    clock.now += 3
    assert dog.overdue() is None
    clock.now += 1
    assert dog.overdue() == ("nvmlDeviceGetName GPU-1", 4)
    dog.ended()
    assert dog.overdue() is None
    dog.began("nvmlInitWithFlags")
    clock.now += 15
    assert dog.overdue() is None
    clock.now += 1
    assert dog.overdue() == ("nvmlInitWithFlags", 16)


def test_the_last_line_of_a_child_names_the_call_and_is_no_sample() -> None:
    line = b'{"hung": "nvmlDeviceGetFanSpeed GPU-1", "seconds": 3.2}\n'
    assert parse_hung(line) == "nvmlDeviceGetFanSpeed GPU-1"
    assert parse(line) is None
    assert [parse_hung(other) for other in (b"", b'{"gpus": []}', b'{"hung": 3}', b'{"hung": ')] == [None] * 4


def test_a_call_is_left_out_after_the_second_strike_and_longer_after_each_further_one() -> None:
    once = Culprits().after("fan", 0)
    assert once.skips(0) == {}
    twice = once.after("fan", 20)
    assert (twice.skips(20), twice.skips(199), twice.skips(200)) == ({"fan": 180}, {"fan": 1}, {})
    assert twice.after("fan", 210).skips(210) == {"fan": 360}
    assert twice.after(None, 100).skips(100) == {"fan": 100}
    now, each = 200.0, twice
    for _ in range(10):
        each = each.after("fan", now)
        now += each.skips(now)["fan"]
    assert each.skips(now - 3600) == {"fan": 3600}


def test_an_accident_is_forgotten_and_others_do_not_add_up() -> None:
    assert Culprits().after("fan", 0).after("fan", 700).skips(700) == {}
    assert Culprits().after("fan", 0).after("power", 10).after(None, 20).skips(20) == {}
    assert (
        len(Culprits().after("fan", 0).after("power", 10).after("fan", 20).after("power", 30).skips(30)) == 2
    )


def test_what_all_of_nvml_needs_is_tried_again_soon() -> None:
    assert Culprits().after("nvmlInitWithFlags", 0).after("nvmlInitWithFlags", 1).skips(1) == {
        "nvmlInitWithFlags": 5
    }
    handle = "nvmlDeviceGetHandleByIndex #1"
    assert Culprits().after(handle, 0).after(handle, 1).skips(1) == {handle: 5}


def test_names_of_many_calls_stay_few() -> None:
    many = Culprits()
    for number in range(200):
        many = many.after(f"call {number}", float(number))
    assert len(many.calls) == 32


def test_it_costs_little_memory(laptop: FakeMachine) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "appliance.monitor.child"],
        env=laptop.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    import psutil

    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()
    resident = psutil.Process(child.pid).memory_info().rss
    child.stdin.close()
    child.wait(timeout=10)
    child.stdout.close()
    assert resident < 32 << 20
