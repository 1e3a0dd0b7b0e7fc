"""AMD GPUs from folders like /sys has them."""

from __future__ import annotations

from pathlib import Path

from appliance.hardware import amd, detect
from appliance.hardware.sysfs import Roots
from tests.hardware.folders import files, pci

_AMD = 0x1002
_GIB = 1 << 30


def _discrete(roots: Roots) -> Path:
    return pci(
        roots,
        "0000:03:00.0",
        _AMD,
        0x744C,
        revision="0xc8",
        mem_info_vram_total=24 * _GIB,
        mem_info_vram_used=2 * _GIB,
        mem_info_gtt_total=16 * _GIB,
        mem_info_gtt_used=1,
        gpu_busy_percent=37,
        hwmon__hwmon4__temp1_input=51000,
        hwmon__hwmon4__temp1_label="edge",
        hwmon__hwmon4__temp1_crit=100000,
        hwmon__hwmon4__temp2_input=64000,
        hwmon__hwmon4__temp2_label="junction",
        hwmon__hwmon4__temp2_crit=110000,
        hwmon__hwmon4__temp3_input=88000,
        hwmon__hwmon4__temp3_label="mem",
        hwmon__hwmon4__power1_average=155000000,
        hwmon__hwmon4__power1_cap=339000000,
    )


def test_a_discrete_gpu_counts_its_vram_only(roots: Roots) -> None:
    _discrete(roots)
    gpu = detect(roots=roots).gpus[0]
    assert (gpu.total, gpu.used, gpu.free) == (24 * _GIB, 2 * _GIB, 22 * _GIB)
    assert (gpu.backend, gpu.integrated, gpu.pci) == ("rocm", False, "0000:03:00.0")
    assert gpu.apart is None


def test_the_hot_spot_is_read_with_its_own_limit(roots: Roots) -> None:
    reading = amd.read_amd(_discrete(roots))
    assert (reading.temperature, reading.critical_at) == (64.0, 110.0)
    assert (reading.power, reading.power_limit, reading.utilisation) == (155.0, 339.0, 37.0)


def test_an_apu_counts_vram_and_gtt(roots: Roots) -> None:
    device = pci(
        roots,
        "0000:c5:00.0",
        _AMD,
        0x1586,
        mem_info_vram_total=_GIB,
        mem_info_vram_used=_GIB // 2,
        mem_info_gtt_total=60 * _GIB,
        mem_info_gtt_used=_GIB,
        hwmon__hwmon2__in1_input=730,
        hwmon__hwmon2__temp1_input=45000,
        hwmon__hwmon2__temp1_label="edge",
        hwmon__hwmon2__power1_input=25000000,
    )
    gpu = detect(roots=roots).gpus[0]
    assert (gpu.total, gpu.used, gpu.integrated) == (61 * _GIB, 3 * _GIB // 2, True)
    assert gpu.apart == _GIB // 2
    reading = amd.read_amd(device)
    assert (reading.temperature, reading.critical_at, reading.power) == (45.0, None, 25.0)


def test_missing_and_broken_files_are_unknown(roots: Roots) -> None:
    device = pci(roots, "0000:03:00.0", _AMD, mem_info_vram_total="garbage", gpu_busy_percent="")
    assert amd.read_amd(device) == amd.AmdReading()
    gpu = detect(roots=roots).gpus[0]
    assert (gpu.total, gpu.free, gpu.integrated) == (None, None, None)


def test_used_memory_without_a_total_gives_no_free_memory(roots: Roots) -> None:
    device = pci(roots, "0000:03:00.0", _AMD, mem_info_vram_used=5)
    reading = amd.read_amd(device)
    assert (reading.total, reading.used, reading.free) == (None, 5, None)


def test_the_name_comes_from_the_board_then_from_libdrm_then_from_the_ids(roots: Roots) -> None:
    device = _discrete(roots)
    assert detect(roots=roots).gpus[0].name == "AMD GPU (PCI 1002:744c)"
    files(roots.share / "libdrm", **{"amdgpu.ids": "# list\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n"})
    assert detect(roots=roots).gpus[0].name == "AMD Radeon RX 7900 XTX"
    files(device, product_name="Radeon \x1b[31mPro W7900")
    assert detect(roots=roots).gpus[0].name == "Radeon [31mPro W7900"


def test_a_sleeping_gpu_is_not_read(roots: Roots) -> None:
    files(_discrete(roots), power__runtime_status="suspended")
    gpu = detect(roots=roots).gpus[0]
    assert (gpu.asleep, gpu.total) == (True, None)
