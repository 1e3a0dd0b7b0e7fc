"""Intel GPUs from folders like the hwmon of xe and i915."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.hardware.sensors import GpuSample, intel
from appliance.hardware.sysfs import Roots
from tests.hardware.folders import files, pci

BLANK = GpuSample("pci:0000:03:00.0", 0, "Intel GPU", "vulkan")


def battlemage(roots: Roots) -> Path:
    return pci(
        roots, "0000:03:00.0", 0x8086, 0xE20B, hwmon__hwmon5__name="xe",
        hwmon__hwmon5__temp2_input=52000, hwmon__hwmon5__temp2_label="pkg",
        hwmon__hwmon5__temp3_input=58000, hwmon__hwmon5__temp3_label="vram",
        hwmon__hwmon5__energy1_input=1_000_000_000, hwmon__hwmon5__energy2_input=1,
        hwmon__hwmon5__power1_max=190_000_000, hwmon__hwmon5__fan1_input=900, hwmon__hwmon5__fan2_input=1100,
    )  # fmt: skip


def test_a_card_of_xe_tells_temperatures_fans_and_the_power_between_two_looks(roots: Roots) -> None:
    device = battlemage(roots)
    first, energy = intel.look(BLANK, device, None, 100.0)
    assert (first.temperature, first.memory_temperature, first.slowdown_at) == (52.0, 58.0, None)
    assert (first.power, first.power_limit, first.fan_rpm, first.utilisation) == (None, 190.0, 1100.0, None)
    files(device, hwmon__hwmon5__energy1_input=1_240_000_000)
    assert intel.look(BLANK, device, energy, 102.0)[0].power == 120.0


def test_without_labels_the_usual_numbers_are_read(roots: Roots) -> None:
    device = battlemage(roots)
    for name in ("temp2_label", "temp3_label"):
        (device / "hwmon" / "hwmon5" / name).unlink()
    sample, _ = intel.look(BLANK, device, None, 0.0)
    assert (sample.temperature, sample.memory_temperature) == (52.0, 58.0)


@pytest.mark.parametrize(
    ("value", "at"), [(999_999_999, 102.0), (1_240_000_000, 100.05), (9_000_000_000_000, 102.0), ("", 102.0)]
)
def test_a_difference_that_makes_no_sense_is_no_power(roots: Roots, value: object, at: float) -> None:
    device = battlemage(roots)
    _, energy = intel.look(BLANK, device, None, 100.0)
    files(device, hwmon__hwmon5__energy1_input=value)
    assert intel.look(BLANK, device, energy, at)[0].power is None


def test_a_limit_that_is_off_is_none(roots: Roots) -> None:
    device = files(battlemage(roots), hwmon__hwmon5__power1_max=0)
    assert intel.look(BLANK, device, None, 0.0)[0].power_limit is None


def test_an_integrated_gpu_has_no_sensors(roots: Roots) -> None:
    device = pci(roots, "0000:00:02.0", 0x8086)
    assert intel.look(BLANK, device, None, 0.0) == (BLANK, None)
