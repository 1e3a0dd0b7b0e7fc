"""When the sensors are read at all, how often, and that no child stays behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appliance.monitor import Change, Listeners, Monitor
from appliance.settings import Governor
from tests.monitor.conftest import FAST, gone, until
from tests.nvml_stub.machine import FakeMachine
from tests.traps import trap


async def test_not_active_ends_the_child_and_keeps_only_what_is_true(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    first = await until(monitor, lambda s: bool(s.gpus) and s.sensor_pid is not None)
    monitor.set_active(False)
    idle = await until(monitor, lambda s: s.sensor_pid is None and s.thermal == "unknown")
    assert first.sensor_pid is not None
    assert gone(first.sensor_pid)
    assert (idle.gpus[0].name, idle.gpus[0].total) == ("Fake RTX 9000 Laptop GPU", 8192 << 20)
    assert (idle.gpus[0].temperature, idle.gpus[0].free, idle.gpus[0].age_s) == (None, None, None)
    assert (idle.stale, idle.message, idle.restarts) == (False, None, 0)
    assert idle.ram_available is not None
    laptop.set(temp=45)
    monitor.set_active(True)
    await until(monitor, lambda s: s.gpus[0].temperature == 45)


async def test_a_monitor_begins_inactive_with_cpu_and_ram_and_no_child(laptop: FakeMachine) -> None:
    monitor = Monitor(Governor(), interval_s=0.05, timing=FAST, env=laptop.env)
    await monitor.start()
    snapshot = await until(monitor, lambda s: s.ram_available is not None and s.cpu_percent is not None)
    assert (snapshot.sensor_pid, snapshot.stale, snapshot.active) == (None, False, False)
    monitor.set_active(True)
    await until(monitor, lambda s: s.sensor_pid is not None and bool(s.gpus))
    await monitor.stop()


async def test_a_cpu_engine_lets_the_gpu_sleep(laptop: FakeMachine, monitor: Monitor) -> None:
    """It stays in the list with what is known of it, and without a reading."""
    seen = await until(monitor, lambda s: bool(s.gpus) and s.gpus[0].temperature == 60)
    monitor.watch_gpus(False)
    let_go = await until(monitor, lambda s: s.gpus[0].temperature is None)
    gpu = let_go.gpus[0]
    assert (gpu.id, gpu.name, gpu.total) == (seen.gpus[0].id, seen.gpus[0].name, 8192 << 20)
    assert (gpu.free, gpu.reasons, gpu.power, gpu.watched) == (None, None, None, False)
    assert let_go.ram_available is not None
    laptop.set(temp=61)
    monitor.watch_gpus(True)
    again = await until(monitor, lambda s: s.gpus[0].temperature == 61)
    assert again.gpus[0].watched
    assert again.restarts == 0


async def test_old_heat_of_a_gpu_that_no_engine_uses_ends_after_the_dwell(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    laptop.set(temp=96)
    gpu = (await until(monitor, lambda s: s.thermal == "critical")).gpus[0]
    told: list[Change] = []
    monitor.listeners = Listeners(told.extend)
    began = time.monotonic()
    monitor.watch_gpus(False)
    await until(monitor, lambda s: s.thermal != "critical")
    assert time.monotonic() - began >= 0.5
    assert (gpu.id, "critical", "unknown") in [(one.device, one.before, one.after) for one in told]


async def test_heat_that_is_forgotten_with_the_last_engine_is_told(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    laptop.set(temp=96)
    gpu = (await until(monitor, lambda s: s.thermal == "critical")).gpus[0]
    told: list[Change] = []
    monitor.listeners = Listeners(told.extend)
    monitor.set_active(False)
    await until(monitor, lambda s: s.thermal == "unknown" and s.sensor_pid is None)
    (change,) = [one for one in told if one.device == gpu.id]
    assert (change.before, change.after) == ("critical", "unknown")
    assert change.why == "no engine heats it, so nobody looks"


async def test_idle_engines_are_looked_at_less_often(monitor: Monitor) -> None:
    await until(monitor, lambda s: bool(s.gpus))
    monitor.set_busy(False)
    await until(monitor, lambda s: s.age_s is not None and s.age_s > 0.15)
    assert not monitor.snapshot.stale


async def test_idle_and_critical_is_looked_at_as_often_as_under_load(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    await until(monitor, lambda s: s.thermal == "cool")
    monitor.set_busy(False)
    assert await seconds_of_samples(monitor, 4) >= 0.5  # 0.25 s each
    laptop.set(temp=93)
    await until(monitor, lambda s: s.thermal == "warm")
    assert await seconds_of_samples(monitor, 4) >= 0.5  # it is shown, and changes nothing
    laptop.set(temp=96)
    await until(monitor, lambda s: s.thermal == "critical")
    assert await seconds_of_samples(monitor, 20) < 3  # 0.05 s each; 5 s at the idle pace
    laptop.set(temp=60)
    await until(monitor, lambda s: s.thermal == "cool")
    assert await seconds_of_samples(monitor, 4) >= 0.5


async def seconds_of_samples(monitor: Monitor, count: int) -> float:
    """How long it takes until `count` samples have come after the next one."""
    began, last = 0.0, float("-inf")
    while count >= 0:
        age = monitor.snapshot.age_s or 0.0
        if age < last:
            began = began or time.monotonic()
            count -= 1
        last = age
        await asyncio.sleep(0.005)
    return time.monotonic() - began


async def test_the_sensors_import_nothing_of_the_current_folder(
    laptop: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = trap(tmp_path / "trap")
    monkeypatch.chdir(tmp_path / "trap")
    monitor = Monitor(Governor(), interval_s=0.05, timing=FAST, env=laptop.env)
    monitor.set_active(True)
    await monitor.start()
    snapshot = await until(monitor, lambda s: bool(s.gpus) or mark.exists())
    await monitor.stop()
    assert not mark.exists()
    assert snapshot.gpus[0].temperature == 60


async def test_stop_leaves_no_child(laptop: FakeMachine) -> None:
    laptop.set(delay_us=60_000_000)
    monitor = Monitor(Governor(), interval_s=0.05, timing=FAST, env=laptop.env)
    monitor.set_active(True)
    await monitor.start()
    snapshot = await until(monitor, lambda s: s.sensor_pid is not None)
    await monitor.stop()
    await monitor.stop()
    assert snapshot.sensor_pid is not None
    assert gone(snapshot.sensor_pid)


_OWNER = """
import asyncio
from appliance.monitor import Change, Listeners, Monitor
from appliance.settings import Governor

async def main():
    monitor = Monitor(Governor(), interval_s=0.05)
    monitor.set_active(True)
    await monitor.start()
    while monitor.snapshot.sensor_pid is None or monitor.snapshot.age_s is None:
        await asyncio.sleep(0.01)
    print(monitor.snapshot.sensor_pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("hang", [False, True])
def test_the_child_dies_with_a_killed_daemon(laptop: FakeMachine, hang: bool) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], env=laptop.env, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    if hang:
        laptop.set(delay_us=60_000_000)
    assert not gone(pid)
    owner.kill()
    owner.wait(timeout=10)
    owner.stdout.close()
    end = time.monotonic() + 5
    while not gone(pid):
        assert time.monotonic() < end, "an orphan sensor"
        time.sleep(0.02)


async def test_a_card_that_no_engine_uses_does_not_count_in_a_machine_without_a_battery(
    laptop: FakeMachine, monitor: Monitor
) -> None:
    laptop.set(count=2, temp__1=97)
    await until(monitor, lambda s: s.thermal == "critical")
    first = monitor.snapshot.gpus[0].id
    monitor.engines_on(frozenset({first}))
    if monitor.snapshot.battery is not None and monitor.snapshot.battery.percent is not None:
        assert monitor.snapshot.thermal == "critical"  # a laptop: its devices share their cooling
        return
    alone = await until(monitor, lambda s: s.thermal == "cool")
    assert [gpu.state for gpu in alone.gpus] == ["cool", "critical"]
    monitor.engines_on(None)
    await until(monitor, lambda s: s.thermal == "critical")


async def test_a_line_that_was_on_its_way_when_it_was_switched_off_is_not_taken(monitor: Monitor) -> None:
    await until(monitor, lambda s: bool(s.gpus) and s.sensor_pid is not None)
    child = monitor._watch._child
    assert child is not None
    real = child.line

    async def line(timeout_s: float) -> bytes | None:
        found = None
        while not found:
            found = await real(timeout_s)
        monitor.set_active(False)
        return found

    child.line = line  # type: ignore[method-assign]
    idle = await until(monitor, lambda s: s.sensor_pid is None)
    assert (idle.gpus[0].temperature, idle.age_s) == (None, None)
