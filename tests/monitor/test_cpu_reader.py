"""The owner of the CPU's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.hardware.sysfs import Roots
from appliance.monitor.child.cpu_reader import CpuReader
from appliance.monitor.child.sensor import Sensor
from tests.hardware.folders import files
from tests.monitor.test_readers import Clock


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "sys", tmp_path / "proc", tmp_path / "share")


def test_a_driver_that_is_loaded_later_is_found_within_a_minute(roots: Roots) -> None:
    clock = Clock()
    reader = CpuReader(roots, clock, linux=True)
    assert reader.read().temperature is None
    files(roots.sys / "class" / "hwmon" / "hwmon0", name="k10temp", temp1_input=50000, temp1_label="Tctl")
    assert reader.read().temperature is None
    clock.now += 61
    assert reader.read().temperature == 50.0


def test_a_sample_has_the_package_the_swap_and_the_power_source(roots: Roots) -> None:
    files(
        roots.sys / "class", hwmon__hwmon3__name="coretemp", hwmon__hwmon3__temp1_input=90000,
        hwmon__hwmon3__temp1_label="Package id 0", hwmon__hwmon3__temp1_crit=100000,
        power_supply__BAT0__type="Battery", power_supply__BAT0__status="Discharging",
        power_supply__BAT0__capacity=64,
    )  # fmt: skip
    files(roots.proc, meminfo="SwapTotal: 8 kB\nSwapFree: 6 kB", cpuinfo="model name : A CPU")
    sensor = Sensor(roots)
    sensor.command("mode host")
    sample = sensor.sample()
    assert sample.cpu is not None
    assert (sample.cpu.name, sample.cpu.temperature, sample.cpu.high_at) == ("A CPU", 90.0, 100.0)
    assert (sample.swap_total, sample.swap_used) == (8192, 2048)
    assert sample.battery is not None
    assert (sample.battery.percent, sample.battery.plugged) == (64.0, False)
