"""The readers of the sensor child on folders, with a clock of their own."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from appliance.hardware import nvml
from appliance.hardware.sysfs import Roots
from appliance.monitor.child.amd_reader import AmdReader
from appliance.monitor.child.nvidia_reader import NvidiaReader
from tests.hardware.folders import files, pci

_NVIDIA, _AMD, _INTEL = 0x10DE, 0x1002, 0x8086


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "sys", tmp_path / "proc", tmp_path / "share")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each try to load NVIDIA's library, which is not there."""
    tries: list[float] = []

    def missing() -> None:
        tries.append(1)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", missing)
    return tries


def test_an_amd_gpu_is_sampled_from_its_files(roots: Roots) -> None:
    device = pci(
        roots,
        "0000:03:00.0",
        _AMD,
        mem_info_vram_total=8 << 30,
        mem_info_vram_used=3 << 30,
        gpu_busy_percent=80,
        hwmon__hwmon1__temp2_input=104000,
        hwmon__hwmon1__temp2_label="junction",
        hwmon__hwmon1__temp2_crit=110000,
        hwmon__hwmon1__power1_average=90500000,
        hwmon__hwmon1__power1_cap=120000000,
    )
    reader = AmdReader(roots, Clock())
    gpu = reader.read()[0]
    assert (gpu.total, gpu.free, gpu.used) == (8 << 30, 5 << 30, 3 << 30)
    assert (gpu.temperature, gpu.slowdown_at, gpu.headroom) == (104, 110, 6)
    assert (gpu.power, gpu.power_limit, gpu.utilisation, gpu.reasons) == (90.5, 120, 80, None)
    files(device, hwmon__hwmon1__temp2_input=0, gpu_busy_percent="")
    gpu = reader.read()[0]
    assert (gpu.temperature, gpu.headroom, gpu.utilisation) == (None, None, None)


def test_a_sleeping_amd_gpu_is_named_and_not_read(roots: Roots) -> None:
    device = pci(roots, "0000:03:00.0", _AMD, gpu_busy_percent=80, power__runtime_status="active")
    reader = AmdReader(roots, Clock())
    assert (reader.read()[0].asleep, reader.read()[0].utilisation) == (False, 80)
    files(device, power__runtime_status="suspended")
    assert (reader.read()[0].asleep, reader.read()[0].utilisation) == (True, None)


def test_an_intel_gpu_is_named_with_unknown_values(roots: Roots) -> None:
    pci(roots, "0000:00:02.0", _INTEL)
    gpu = AmdReader(roots, Clock()).read()[0]
    assert (gpu.backend, gpu.total, gpu.temperature, gpu.utilisation) == ("vulkan", None, None, None)


def test_an_amd_gpu_that_is_plugged_in_later_is_found_within_a_minute(roots: Roots) -> None:
    clock = Clock()
    reader = AmdReader(roots, clock)
    assert reader.read() == []
    pci(roots, "0000:03:00.0", _AMD)
    clock.now += 60
    assert len(reader.read()) == 1


def test_a_sleeping_nvidia_gpu_is_left_alone(roots: Roots, loads: list[float]) -> None:
    device = pci(roots, "0000:01:00.0", _NVIDIA, power__runtime_status="suspended")
    reader = NvidiaReader(roots, Clock())
    samples = reader.read()
    assert [(gpu.id, gpu.asleep, gpu.temperature) for gpu in samples] == [("pci:0000:01:00.0", True, None)]
    assert (loads, reader.trouble) == ([], None)
    files(device, power__runtime_status="active")
    reader.read()
    assert len(loads) == 1


def test_a_missing_library_is_trouble_only_beside_a_card_and_tried_once_a_minute(
    roots: Roots, loads: list[float]
) -> None:
    clock = Clock()
    reader = NvidiaReader(roots, clock)
    assert reader.read() == []
    assert reader.trouble is None
    pci(roots, "0000:01:00.0", _NVIDIA)
    clock.now += 59
    reader.read()
    assert len(loads) == 1
    clock.now += 1
    reader.read()
    assert len(loads) == 2
    assert reader.trouble == str(nvml.trouble("library_missing"))
