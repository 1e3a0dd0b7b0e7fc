"""The owner of AMD's and Intel's files: what it keeps between looks, and what it leaves alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from appliance.hardware.sysfs import Roots
from appliance.monitor.child.amd_reader import AmdReader
from tests.hardware.amd_tables import table
from tests.hardware.folders import files, opened, pci
from tests.monitor.test_readers import Clock


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "sys", tmp_path / "proc", tmp_path / "share")


def halo(roots: Roots, thm_gfx: int, **more: Any) -> Path:
    device = pci(
        roots, "0000:c5:00.0", 0x1002, 0x1586, mem_info_vram_total=1 << 30, mem_info_vram_used=0,
        mem_info_gtt_total=60 << 30, mem_info_gtt_used=1 << 30, hwmon__hwmon2__in1_input=730,
        hwmon__hwmon2__temp1_input=70000, hwmon__hwmon2__temp1_label="edge", **more,
    )  # fmt: skip
    (device / "gpu_metrics").write_bytes(table((3, 0), thm_gfx=thm_gfx))
    return device


def test_counters_are_compared_over_looks_and_over_the_minute(roots: Roots) -> None:
    clock = Clock()
    reader = AmdReader(roots, clock)
    halo(roots, 5)
    assert [gpu.reasons for gpu in reader.read()] == [None]
    halo(roots, 9)
    assert [gpu.reasons for gpu in reader.read()] == [0x20]
    clock.now += 61
    assert [gpu.reasons for gpu in reader.read()] == [0]


def test_what_was_seen_before_a_sleep_is_forgotten(roots: Roots) -> None:
    reader = AmdReader(roots, Clock())
    device = halo(roots, 5)
    reader.read()
    for state in ("suspending", "suspended"):
        files(device, power__runtime_status=state)
        (row,) = reader.read()
        assert (row.asleep, row.temperature, row.free) == (True, None, None)
    halo(roots, 9, power__runtime_status="active")
    assert [gpu.reasons for gpu in reader.read()] == [None]


def test_no_file_of_a_sleeping_card_is_opened(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    device = halo(roots, 5, power__runtime_status="active")
    reader = AmdReader(roots, Clock())
    reader.read()
    files(device, power__runtime_status="suspended")
    found = opened(monkeypatch)
    reader.read()
    assert found == [device / "power" / "runtime_status"]
    files(device, power__runtime_status="active")
    reader.read()
    assert device / "gpu_metrics" in found
    assert device / "mem_info_vram_used" in found


def test_a_card_that_is_pulled_out_is_lost_and_then_gone(roots: Roots) -> None:
    clock = Clock()
    reader = AmdReader(roots, clock)
    device = halo(roots, 5)
    reader.read()
    shutil.rmtree(device)
    (row,) = reader.read()
    assert (row.trouble, row.temperature, row.name) == ("gpu_lost", None, "AMD GPU (PCI 1002:1586)")
    clock.now += 61
    assert reader.read() == []


def test_the_power_of_an_intel_card_is_a_difference(roots: Roots) -> None:
    clock = Clock()
    reader = AmdReader(roots, clock)
    device = pci(roots, "0000:03:00.0", 0x8086, hwmon__hwmon5__energy1_input=0)
    assert reader.read()[0].power is None
    files(device, hwmon__hwmon5__energy1_input=45_000_000)
    clock.now += 1
    assert reader.read()[0].power == 45.0
