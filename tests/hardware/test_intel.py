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


def test_what_has_another_label_is_not_taken_for_the_memory(roots: Roots) -> None:
    device = files(battlemage(roots), hwmon__hwmon5__temp3_label="mctrl")
    sample, _ = intel.look(BLANK, device, None, 0.0)
    assert (sample.temperature, sample.memory_temperature) == (52.0, None)


def test_i915_has_one_temperature_without_a_label(roots: Roots) -> None:
    device = pci(
        roots, "0000:03:00.0", 0x8086, hwmon__hwmon2__name="i915", hwmon__hwmon2__temp1_input=61000,
        hwmon__hwmon2__energy1_input=5, hwmon__hwmon2__power1_max=150_000_000,
    )  # fmt: skip
    sample, _ = intel.look(BLANK, device, None, 0.0)
    assert (sample.temperature, sample.memory_temperature, sample.power_limit) == (61.0, None, 150.0)


XE, I915 = "tile0__gt0__freq0__throttle__reason_", "drm__card1__gt__gt0__throttle_reason_"
CLOCKS = {
    XE: ("tile0__gt0__freq0__act_freq", "tile0__gt0__freq0__rp0_freq"),
    I915: ("drm__card1__gt_act_freq_mhz", "drm__card1__gt_RP0_freq_mhz"),
}
STATUS = {XE: "tile0__gt0__freq0__throttle__status", I915: "drm__card1__gt__gt0__throttle_reason_status"}


@pytest.mark.parametrize("driver", [XE, I915])
@pytest.mark.parametrize(
    ("held", "mask"),
    [
        ((), 0), (("pl1",), 0x4), (("pl4", "vr_tdc"), 0x4), (("thermal",), 0x20), (("ratl",), 0x20),
        (("vr_thermalert", "pl2"), 0x24), (("prochot",), 0x40),
    ],
)  # fmt: skip
def test_clocks_and_why_they_are_lowered(roots: Roots, driver: str, held: tuple[str, ...], mask: int) -> None:
    words = ("pl1", "pl2", "pl4", "thermal", "prochot", "ratl", "vr_thermalert", "vr_tdc")
    given: dict[str, object] = {f"{driver}{word}": int(word in held) for word in words}
    given |= {STATUS[driver]: int(bool(held)), CLOCKS[driver][0]: 1950, CLOCKS[driver][1]: 2850}
    device = files(pci(roots, "0000:00:02.0", 0x8086), **given)
    sample, _ = intel.look(BLANK, device, None, 0.0)
    assert (sample.clock, sample.clock_max, sample.reasons) == (1950.0, 2850.0, mask)
    files(device, **{STATUS[driver]: "", CLOCKS[driver][0]: 0})
    sample, _ = intel.look(BLANK, device, None, 0.0)
    assert (sample.clock, sample.reasons) == (None, None)


def test_an_integrated_gpu_has_no_sensors(roots: Roots) -> None:
    device = pci(roots, "0000:00:02.0", 0x8086)
    assert intel.look(BLANK, device, None, 0.0) == (BLANK, None)
