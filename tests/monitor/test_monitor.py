"""The monitor with a real child on the fake NVML: samples, heat, silence, crashes, the end."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from appliance.monitor import Monitor, SpeedKey, speed_key
from appliance.settings import Governor
from tests.monitor.conftest import FAST, gone, until
from tests.nvml_stub.machine import FakeMachine

KEY: SpeedKey = speed_key("m", "p", "ac", streams=1, tokens=100)
PLACES = {"GPU-00000000-0000-0000-0000-000000000000"}


async def test_a_snapshot_has_the_sensors_values(laptop: FakeMachine, monitor: Monitor) -> None:
    laptop.set(temp=71, reasons=0x24, pid=4242)
    monitor.set_engine_pids({4242})
    snapshot = await until(
        monitor, lambda s: bool(s.gpus) and s.gpus[0].temperature == 71 and s.cpu_percent is not None
    )
    gpu = snapshot.gpus[0]
    assert (gpu.total, gpu.free, gpu.used_by_engine) == (8192 << 20, 6868 << 20, 512 << 20)
    assert (gpu.slowdown_at, gpu.reasons) == (94, ("SwPowerCap", "SwThermalSlowdown"))
    assert (gpu.power, gpu.power_limit, gpu.utilisation) == (80, 115, 50)
    assert gpu.age_s is not None
    assert gpu.age_s < 1
    assert (snapshot.stale, snapshot.message, snapshot.factor) == (False, None, 1.0)
    assert snapshot.ram_total is not None
    assert snapshot.ram_available is not None


async def test_before_the_first_sample_all_is_unknown() -> None:
    snapshot = Monitor(Governor()).snapshot
    assert (snapshot.gpus, snapshot.thermal, snapshot.factor) == ((), "unknown", 1.0)
    assert (snapshot.cpu_percent, snapshot.ram_total, snapshot.stale) == (None, None, False)


async def test_without_a_gpu_cpu_and_ram_still_flow(laptop: FakeMachine) -> None:
    laptop.set(err__nvmlInitWithFlags=12)
    monitor = Monitor(Governor(), interval_s=0.05, timing=FAST, env=laptop.env)
    monitor.set_active(True)
    await monitor.start()
    try:
        snapshot = await until(monitor, lambda s: s.cpu_percent is not None and s.age_s is not None)
    finally:
        await monitor.stop()
    assert (snapshot.gpus, snapshot.thermal, snapshot.message) == ((), "unknown", None)
    assert snapshot.ram_available is not None


async def test_over_the_threshold_is_critical_after_the_hold_and_ends_after_the_dwell(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    await until(monitor, lambda s: s.thermal == "cool")
    laptop.set(temp=95)
    await until(monitor, lambda s: s.thermal == "warm")
    critical = await until(monitor, lambda s: s.thermal == "critical")
    assert critical.gpus[0].state == "critical"
    laptop.set(temp=70)
    began = time.monotonic()
    await until(monitor, lambda s: s.thermal == "cool")
    assert time.monotonic() - began >= 0.5


async def test_slow_decode_under_heat_is_throttled_with_its_factor(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    await until(monitor, lambda s: s.thermal == "cool")
    for _ in range(5):
        monitor.observe_speed(KEY, 50.0, PLACES)
    laptop.set(temp=80, reasons=0x20)
    await until(monitor, lambda s: s.thermal == "warm")
    assert monitor.snapshot.factor == 1.0
    for _ in range(3):
        monitor.observe_speed(KEY, 25.0, PLACES)
    throttled = await until(monitor, lambda s: s.thermal == "throttled")
    assert throttled.factor == pytest.approx(0.5)
    for _ in range(3):
        monitor.observe_speed(KEY, 49.0, PLACES)
    await until(monitor, lambda s: s.thermal == "warm")
    assert monitor.snapshot.factor == 1.0


async def test_a_laptop_that_always_reports_throttling_at_usual_speed_stays_warm(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    laptop.set(temp=55, reasons=0x60)
    await until(monitor, lambda s: s.thermal == "warm")
    seen = set()
    for _ in range(40):
        monitor.observe_speed(KEY, 50.0, PLACES)
        seen.add(monitor.snapshot.thermal)
        await asyncio.sleep(0.01)
    assert seen == {"warm"}
    assert monitor.snapshot.factor == 1.0


async def test_a_hanging_driver_turns_values_stale_restarts_the_child_and_blocks_nothing(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    first = await until(monitor, lambda s: bool(s.gpus))
    laptop.set(delay_us=5_000_000)
    longest, last = 0.0, time.monotonic()

    async def heartbeat() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    beating = asyncio.create_task(heartbeat())
    stale = await until(monitor, lambda s: s.stale)
    assert stale.gpus[0].temperature == 60
    assert stale.gpus[0].age_s is not None
    assert stale.gpus[0].age_s > 0.4
    assert stale.message is not None
    assert "silent" in stale.message
    await until(monitor, lambda s: s.restarts >= 1 and s.sensor_pid not in (None, first.sensor_pid))
    assert monitor.snapshot.cpu_percent is not None
    beating.cancel()
    assert longest < 2  # a call that waited for the driver would take 5 s
    assert first.sensor_pid is not None
    assert gone(first.sensor_pid)


async def test_after_a_hang_the_values_are_fresh_again(laptop: FakeMachine, monitor: Monitor) -> None:
    await until(monitor, lambda s: bool(s.gpus))
    laptop.set(delay_us=60_000_000)
    await until(monitor, lambda s: s.stale and s.restarts >= 1)
    laptop.set(temp=66)
    fast_enough = FAST.first + 20  # a child that began while the driver hung is given up after `first`
    fresh = await until(monitor, lambda s: not s.stale and s.gpus[0].temperature == 66, fast_enough)
    assert fresh.message is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
async def test_a_killed_or_crashed_child_is_started_again(
    laptop: FakeMachine, monitor: Monitor, number: signal.Signals
) -> None:
    first = await until(monitor, lambda s: bool(s.gpus) and s.sensor_pid is not None)
    assert first.sensor_pid is not None
    os.kill(first.sensor_pid, number)
    laptop.set(temp=62)
    again = await until(monitor, lambda s: s.gpus[0].temperature == 62)
    assert again.restarts == 1
    assert again.sensor_pid != first.sensor_pid


async def test_a_library_that_crashes_the_child_leaves_cpu_and_ram(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    laptop.set(crash=1)
    snapshot = await until(monitor, lambda s: s.restarts >= 2)
    assert snapshot.ram_available is not None
    laptop.set(temp=58)
    await until(monitor, lambda s: bool(s.gpus) and s.gpus[0].temperature == 58)


async def test_a_gpu_that_is_lost_while_critical_stays_critical_until_it_reads_cool(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    laptop.set(temp=96)
    await until(monitor, lambda s: s.thermal == "critical")
    laptop.lose_gpu()
    lost = await until(monitor, lambda s: s.message is not None)
    assert lost.gpus[0].temperature is None
    assert lost.thermal == "critical"
    laptop.set(temp=60)
    await until(monitor, lambda s: s.thermal == "cool")


async def test_a_sensor_that_falls_silent_makes_cool_unknown(laptop: FakeMachine, monitor: Monitor) -> None:
    await until(monitor, lambda s: s.thermal == "cool")
    laptop.set(delay_us=60_000_000)
    await until(monitor, lambda s: s.stale and s.thermal == "unknown")
