"""The CPU package from folders like /sys, and through psutil elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.hardware import cgroup, host
from appliance.hardware.sensors import CpuSample, cpu
from appliance.hardware.sysfs import Roots
from tests.hardware.folders import files, opened


def chip(roots: Roots, number: int, **contents: object) -> Path:
    return files(roots.sys / "class" / "hwmon" / f"hwmon{number}", **contents)


def core(roots: Roots, number: int, **contents: object) -> Path:
    return files(roots.sys / "devices" / "system" / "cpu" / f"cpu{number}", **contents)


def look(roots: Roots) -> CpuSample:
    return cpu.look(cpu.find(roots))


def intel(roots: Roots) -> Path:
    return chip(
        roots, 4, name="coretemp",
        temp1_input=71000, temp1_label="Package id 0", temp1_max=80000, temp1_crit=100000,
        temp2_input=74000, temp2_label="Core 0", temp2_max=80000, temp2_crit=100000,
        temp3_input=69000, temp3_label="Core 1", temp3_max=80000, temp3_crit=100000,
    )  # fmt: skip


def test_an_intel_package_slows_down_at_its_junction_limit(roots: Roots) -> None:
    """`max` (80) is where its fans should be at full speed, no limit of its speed; it tells no shutdown."""
    intel(roots)
    sample = look(roots)
    assert (sample.temperature, sample.high_at, sample.critical_at) == (71.0, 100.0, None)


def test_without_a_package_sensor_the_hottest_core_counts(roots: Roots) -> None:
    (intel(roots) / "temp1_input").unlink()
    assert look(roots).temperature == 74.0


@pytest.mark.parametrize("value", ["", "0", "-5000", "250000", "nonsense"])
def test_a_package_that_says_nonsense_gives_way_to_the_cores(roots: Roots, value: str) -> None:
    files(intel(roots), temp1_input=value)
    assert look(roots).temperature == 74.0


def test_of_two_sockets_the_hotter_counts(roots: Roots) -> None:
    intel(roots)
    chip(roots, 5, name="coretemp", temp1_input=88000, temp1_label="Package id 1", temp1_crit=95000)
    assert (look(roots).temperature, look(roots).high_at) == (88.0, 95.0)


def test_old_ryzens_tell_a_control_value_beside_the_true_one(roots: Roots) -> None:
    """Of a 2700X Tctl is 10 degrees over the die; `max` is a constant of the driver."""
    chip(
        roots, 1, name="k10temp", temp1_input=65000, temp1_label="Tctl", temp1_max=70000,
        temp2_input=55000, temp2_label="Tdie", temp3_input=54000, temp3_label="Tccd1",
    )  # fmt: skip
    sample = look(roots)
    assert (sample.temperature, sample.high_at, sample.critical_at) == (55.0, None, None)


def test_newer_ryzens_tell_only_the_control_value(roots: Roots) -> None:
    chip(roots, 1, name="k10temp", temp1_input=65000, temp1_label="Tctl", temp3_input=71000, temp3_label="x")
    assert look(roots).temperature == 65.0


def test_zenpower_and_an_old_kernel_without_labels(roots: Roots) -> None:
    chip(roots, 1, name="zenpower", temp1_input=48000, temp1_label="Tdie", temp2_input=58000)
    assert look(roots).temperature == 48.0


def test_an_arm_board_tells_where_it_is_shut_down(roots: Roots) -> None:
    chip(roots, 0, name="cpu_thermal", temp1_input=62000, temp1_crit=110000)
    sample = look(roots)
    assert (sample.temperature, sample.high_at, sample.critical_at) == (62.0, None, 110.0)


def test_the_same_limit_twice_is_no_shutdown(roots: Roots) -> None:
    chip(roots, 0, name="cpu-thermal", temp1_input=62000, temp1_max=90000, temp1_crit=90000)
    assert (look(roots).high_at, look(roots).critical_at) == (90.0, None)


def test_a_board_zone_comes_last_and_limits_nothing(roots: Roots) -> None:
    zone = chip(roots, 0, name="acpitz", temp1_input=27800, temp1_crit=119000)
    sample = look(roots)
    assert (sample.temperature, sample.high_at, sample.critical_at) == (27.8, None, None)
    intel(roots)
    assert look(roots).temperature == 71.0
    files(zone, temp1_input=99000)
    assert look(roots).temperature == 71.0


def test_no_other_chip_is_read(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk's or a Wi-Fi card's sensor may wake it: only its name is looked at."""
    disk = chip(roots, 0, name="drivetemp", temp1_input=31000)
    intel(roots)
    found = opened(monkeypatch)
    assert look(roots).temperature == 71.0
    assert [file for file in found if file.parent == disk] == [disk / "name"]


def test_throttling_is_told_per_package_and_not_summed_over_cores(roots: Roots) -> None:
    for number in range(8):
        core(
            roots, number, topology__physical_package_id=number // 4,
            thermal_throttle__package_throttle_total_time_ms=1500 if number < 4 else 900,
            thermal_throttle__core_throttle_total_time_ms=99999,
        )  # fmt: skip
    found = cpu.find(roots)
    assert cpu.look(found).throttled_ns == 1_500_000_000
    assert len(found.throttled) == 4


def test_without_package_counters_the_worst_core_counts(roots: Roots) -> None:
    core(roots, 0, thermal_throttle__core_throttle_total_time_ms=20)
    core(roots, 1, thermal_throttle__core_throttle_total_time_ms=70)
    assert look(roots).throttled_ns == 70_000_000


def test_the_clock_is_that_of_the_fast_cores(roots: Roots) -> None:
    for number in range(32):
        fast = number < 16
        core(
            roots, number, cpufreq__scaling_cur_freq=4_100_000 + number if fast else 9_000_000,
            cpufreq__cpuinfo_max_freq=5_400_000 if fast else 3_900_000,
        )  # fmt: skip
    found = cpu.find(roots)
    assert len(found.clocks) == 8
    assert cpu.look(found).clock == pytest.approx(4100.014)
    assert cpu.look(found).clock_max == 5400.0


def test_a_machine_that_tells_nothing_is_unknown(roots: Roots) -> None:
    files(roots.proc, cpuinfo="processor : 0\nmodel name : Some CPU @ 3 GHz")
    assert look(roots) == CpuSample(name="Some CPU @ 3 GHz")


def test_files_that_vanish_after_they_were_found_are_unknown(roots: Roots) -> None:
    folder = intel(roots)
    core(roots, 0, cpufreq__scaling_cur_freq=1000, thermal_throttle__package_throttle_total_time_ms=5)
    found = cpu.find(roots)
    for file in (*folder.iterdir(), *found.clocks, *found.throttled):
        file.unlink()
    sample = cpu.look(found)
    assert (sample.temperature, sample.high_at, sample.clock, sample.throttled_ns) == (None,) * 4


def _psutil(**calls: Any) -> SimpleNamespace:
    return SimpleNamespace(**{name: (lambda value=value: value) for name, value in calls.items()})


def _entry(label: str, current: float, critical: float | None) -> SimpleNamespace:
    return SimpleNamespace(label=label, current=current, high=None, critical=critical)


def test_psutil_tells_where_there_is_no_sysfs() -> None:
    library = _psutil(
        sensors_temperatures={"coretemp": [_entry("Core 0", 61.0, 100.0), _entry("Core 1", 66.0, 100.0)]},
        cpu_freq=SimpleNamespace(current=2900.0, max=4800.0),
    )
    assert cpu.look_by_psutil("CPU", library) == CpuSample("CPU", 66.0, 100.0, None, None, 2900.0, 4800.0)


def test_psutil_without_these_calls_or_values_gives_none() -> None:
    assert cpu.look_by_psutil("CPU", SimpleNamespace()) == CpuSample("CPU")
    library = _psutil(sensors_temperatures={}, cpu_freq=None)
    assert cpu.look_by_psutil(None, library) == CpuSample()
    odd = _psutil(
        sensors_temperatures={"coretemp": [_entry("", 0.0, 0.0)]}, cpu_freq=SimpleNamespace(current=0)
    )
    assert cpu.look_by_psutil(None, odd) == CpuSample()

    def broken() -> object:
        raise NotImplementedError

    assert cpu.look_by_psutil(None, SimpleNamespace(cpu_freq=broken)) == CpuSample()


def test_swap_of_the_machine_and_none_at_all(roots: Roots) -> None:
    files(roots.proc, meminfo="MemTotal: 100 kB\nSwapTotal:    2048 kB\nSwapFree:     512 kB")
    assert host.swap(cgroup.Limits(), roots) == host.Swap(2048 << 10, 1536 << 10)
    files(roots.proc, meminfo="SwapTotal: 0 kB\nSwapFree: 0 kB")
    assert host.swap(cgroup.Limits(), roots) == host.Swap(0, 0)
    files(roots.proc, meminfo="SwapTotal: 10 kB\nSwapFree: 99 kB")
    assert host.swap(cgroup.Limits(), roots) == host.Swap(10 << 10, None)


def test_a_container_that_may_not_swap_has_none(roots: Roots) -> None:
    files(roots.proc, meminfo="SwapTotal: 2048 kB\nSwapFree: 512 kB")
    files(roots.proc / "self", cgroup="0::/")
    group = files(roots.sys / "fs" / "cgroup", **{"memory.swap.max": 0, "memory.swap.current": 0})
    assert host.swap(cgroup.read(roots), roots) == host.Swap(0, 0)
    files(group, **{"memory.swap.max": "max", "memory.swap.current": 4096})
    assert host.swap(cgroup.read(roots), roots) == host.Swap(2048 << 10, 1536 << 10)
    files(group, **{"memory.swap.max": 1 << 20})
    assert host.swap(cgroup.read(roots), roots) == host.Swap(1 << 20, 4096)


@pytest.mark.parametrize("crit", [50, 1000, 30_000])
def test_a_limit_far_below_all_others_is_none(roots: Roots, crit: int) -> None:
    files(intel(roots), temp1_crit=crit)
    assert look(roots).high_at is None
