"""RAM and cores, cut down to what this container may use."""

from __future__ import annotations

import threading
import time
from collections import namedtuple

import psutil
import pytest

from appliance.hardware import apple, cgroup, cores, detect, host
from appliance.hardware.sysfs import Roots
from tests.hardware.folders import files

_MIB = 1 << 20


def test_version_2_limits_bind_at_every_level(roots: Roots) -> None:
    files(roots.proc / "self", cgroup="0::/user.slice/app.scope")
    group = roots.sys / "fs" / "cgroup" / "user.slice"
    files(group / "app.scope", **{"memory.max": "max", "memory.current": 100 * _MIB, "cpu.max": "max 100000"})
    files(group, **{"memory.max": 512 * _MIB, "memory.current": 300 * _MIB, "cpu.max": "150000 100000"})
    files(group, **{"memory.stat": f"anon 5\ninactive_file {50 * _MIB}"})
    assert cgroup.read(roots) == cgroup.Limits(512 * _MIB, 262 * _MIB, 2)


def test_version_1_inside_a_container_is_read_at_the_mount(roots: Roots) -> None:
    files(roots.proc / "self", cgroup="4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/docker/abc")
    mount = roots.sys / "fs" / "cgroup"
    files(mount / "memory", **{"memory.limit_in_bytes": 256 * _MIB, "memory.usage_in_bytes": 56 * _MIB})
    files(mount / "cpu", **{"cpu.cfs_quota_us": 50000, "cpu.cfs_period_us": 100000})
    assert cgroup.read(roots) == cgroup.Limits(256 * _MIB, 200 * _MIB, 1)


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "0", "nonsense", ""])
def test_no_limit_is_none(roots: Roots, limit: str) -> None:
    files(roots.proc / "self", cgroup="0::/\n4:memory:/")
    files(roots.sys / "fs" / "cgroup", **{"memory.max": limit, "cpu.max": "max 100000"})
    files(roots.sys / "fs" / "cgroup" / "memory", **{"memory.limit_in_bytes": limit})
    assert cgroup.read(roots) == cgroup.Limits()


def test_a_limit_below_the_physical_ram_wins_and_is_told(roots: Roots) -> None:
    files(roots.proc / "self", cgroup="0::/")
    files(roots.sys / "fs" / "cgroup", **{"memory.max": 64 * _MIB, "memory.current": 70 * _MIB})
    machine = detect(roots=roots)
    assert (machine.ram_total, machine.ram_available) == (64 * _MIB, 0)
    assert any("64.0 MiB" in note for note in machine.notes)


def test_a_limit_above_the_physical_ram_changes_nothing() -> None:
    physical = psutil.virtual_memory().total
    assert host.ram(cgroup.Limits(memory=physical * 2)).total == physical


def test_a_cpu_quota_cuts_the_cores() -> None:
    found = cores.cores(cgroup.Limits(cpus=1))
    assert (found.physical, found.logical, found.performance) == (1, 1, 1)


def test_a_broken_battery_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> object:
        raise FileNotFoundError("/sys/class/power_supply/BAT0/energy_now")

    monkeypatch.setattr(psutil, "sensors_battery", broken, raising=False)
    assert host.battery(linux=False) is None
    monkeypatch.delattr(psutil, "sensors_battery")
    assert host.battery(linux=False) is None


def test_the_first_cpu_load_is_unknown_and_not_zero() -> None:
    load = host.CpuLoad()
    assert load.percent() is None
    end = time.monotonic() + 5
    while (second := load.percent()) is None:  # the kernel counts in hundredths of a second
        assert time.monotonic() < end
    assert 0 <= second <= 100


def test_apple_silicon_shares_its_memory() -> None:
    answers = {"machdep.cpu.brand_string": "Apple M3 Max", "iogpu.wired_limit_mb": "49152"}
    gpu = apple.detect(answers.get)[0]
    assert (gpu.name, gpu.backend, gpu.integrated, gpu.total) == ("Apple M3 Max", "metal", True, 48 << 30)
    assert apple.detect({"iogpu.wired_limit_mb": "0"}.get)[0].total is None


def test_elsewhere_there_is_no_apple_gpu() -> None:
    assert apple.detect() == ()


def test_the_load_is_the_same_from_whatever_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil's own figure starts anew in each thread, with 0."""
    Times = namedtuple("Times", ["user", "idle", "iowait", "guest"])
    looks = iter([Times(10.0, 90.0, 5.0, 2.0), Times(16.0, 92.0, 7.0, 4.0), Times(16.0, 92.0, 7.0, 4.0)])
    monkeypatch.setattr("psutil.cpu_times", lambda: next(looks))
    load, found = host.CpuLoad(), []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(load.percent()))
        thread.start()
        thread.join()
    # 6 s of user time, 2 of them of a guest, which counts twice; 4 s idle or waiting for a disk
    assert found == [None, pytest.approx(60.0), pytest.approx(60.0)]
