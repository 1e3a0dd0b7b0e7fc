"""AMD GPUs from folders like /sys has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.hardware import amd, detect
from appliance.hardware.sensors import GpuSample
from appliance.hardware.sensors import amd as sensor
from appliance.hardware.sensors.gpu_metrics import Throttling
from appliance.hardware.sysfs import Roots
from tests.hardware.amd_tables import table
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
        hwmon__hwmon4__temp1_emergency=105000,
        hwmon__hwmon4__temp2_input=64000,
        hwmon__hwmon4__temp2_label="junction",
        hwmon__hwmon4__temp2_crit=110000,
        hwmon__hwmon4__temp2_emergency=115000,
        hwmon__hwmon4__temp3_input=88000,
        hwmon__hwmon4__temp3_label="mem",
        hwmon__hwmon4__power1_average=155000000,
        hwmon__hwmon4__power1_cap=339000000,
        hwmon__hwmon4__freq1_input=2482000000,
        hwmon__hwmon4__freq1_label="sclk",
        hwmon__hwmon4__freq2_input=1249000000,
        hwmon__hwmon4__freq2_label="mclk",
        hwmon__hwmon4__fan1_input=1450,
        hwmon__hwmon4__pwm1=51,
        hwmon__hwmon4__pwm1_max=255,
        mem_busy_percent=12,
        pp_dpm_sclk="0: 500Mhz\n1: 2482Mhz *\n2: 2526Mhz",
        pp_dpm_mclk="0: 96Mhz\n1: 456Mhz\n2: 1249Mhz *",
    )


def test_a_discrete_gpu_counts_its_vram_only(roots: Roots) -> None:
    _discrete(roots)
    gpu = detect(roots=roots).gpus[0]
    assert (gpu.total, gpu.used, gpu.free) == (24 * _GIB, 2 * _GIB, 22 * _GIB)
    assert (gpu.backend, gpu.integrated, gpu.pci) == ("rocm", False, "0000:03:00.0")
    assert gpu.apart is None


BLANK = GpuSample("amd-1", 0, "AMD GPU", "rocm")


def look(device: Path, before: Throttling | None = None) -> GpuSample:
    return sensor.look(BLANK, device, sensor.maxima(device), before)[0]


def test_a_discrete_card_tells_everything(roots: Roots) -> None:
    device = _discrete(roots)
    (device / "gpu_metrics").write_bytes(table((1, 3), indep_throttle_status=1 << 36 | 1))
    assert look(device) == replace(
        BLANK, total=24 * _GIB, used=2 * _GIB, free=22 * _GIB, memory_source="driver",
        temperature=64.0, slowdown_at=110.0, shutdown_at=115.0, headroom=46.0, memory_temperature=88.0,
        reasons=0x4, clock=2482.0, clock_max=2526.0, memory_clock=1249.0, memory_clock_max=1249.0,
        power=155.0, power_limit=339.0, utilisation=37.0, memory_utilisation=12.0, fan=20.0, fan_rpm=1450.0,
    )  # fmt: skip


def test_a_hot_spot_at_its_limit_is_a_reason(roots: Roots) -> None:
    device = files(_discrete(roots), hwmon__hwmon4__temp2_input=107000)
    (device / "gpu_metrics").write_bytes(table((1, 3), indep_throttle_status=1 << 36))
    assert (look(device).headroom, look(device).reasons) == (3.0, 0x40)


def test_without_a_hot_spot_the_edge_counts_with_its_own_limits(roots: Roots) -> None:
    device = files(_discrete(roots), hwmon__hwmon4__temp2_input="")
    sample = look(device)
    assert (sample.temperature, sample.slowdown_at, sample.shutdown_at) == (51.0, 100.0, 105.0)


def test_an_old_kernel_has_levels_and_no_table(roots: Roots) -> None:
    device = pci(
        roots, "0000:03:00.0", _AMD, hwmon__hwmon1__temp1_input=60000,
        pp_dpm_sclk="0: 300Mhz\n1: 608Mhz *\n2: 1366Mhz", pp_dpm_mclk="0: 300Mhz *\n1: 2000Mhz",
    )  # fmt: skip
    sample = look(device)
    assert (sample.temperature, sample.slowdown_at, sample.headroom, sample.reasons) == (
        60.0,
        None,
        None,
        None,
    )
    assert (sample.clock, sample.clock_max) == (608.0, 1366.0)
    assert (sample.memory_clock, sample.memory_clock_max) == (300.0, 2000.0)


def test_a_fan_that_stands_still_is_zero_and_not_unknown(roots: Roots) -> None:
    device = files(_discrete(roots), hwmon__hwmon4__fan1_input=0, hwmon__hwmon4__pwm1=0)
    assert (look(device).fan, look(device).fan_rpm) == (0.0, 0.0)


@pytest.mark.parametrize("value", ["", "garbage", "-1", "99999999999999"])
def test_every_file_with_nonsense_is_unknown(roots: Roots, value: str) -> None:
    device = _discrete(roots)
    for file in (f for f in device.rglob("*") if f.is_file() and f.name not in ("vendor", "class")):
        if not file.name.endswith("_label") and file.name != "pwm1_max":
            file.write_text(value)
    sample = look(device)
    names = (
        "temperature", "slowdown_at", "shutdown_at", "headroom", "memory_temperature", "reasons", "clock",
        "clock_max", "memory_clock", "power", "power_limit", "utilisation", "memory_utilisation", "fan",
        "fan_rpm",
    )  # fmt: skip
    told = {name for name in names if getattr(sample, name) is not None}
    assert told == set()


def test_files_that_can_not_be_read_are_unknown(roots: Roots) -> None:
    device = _discrete(roots)
    for name in ("gpu_metrics", "gpu_busy_percent", "hwmon/hwmon4/temp2_input", "mem_info_vram_used"):
        path = device / name
        path.unlink(missing_ok=True)
        path.mkdir()  # a folder can't be read by anybody, root included
    sample = look(device)
    assert (sample.reasons, sample.utilisation, sample.free, sample.temperature) == (None, None, None, 51.0)


def test_more_used_than_there_is_gives_no_free_memory(roots: Roots) -> None:
    device = files(_discrete(roots), mem_info_vram_used=25 * _GIB)
    assert (look(device).total, look(device).free) == (24 * _GIB, None)


def test_an_apu_tells_which_limits_held_since_the_last_look(roots: Roots) -> None:
    device = _apu(roots)
    (device / "gpu_metrics").write_bytes(table((3, 0), thm_gfx=100, spl=7))
    sample, seen = sensor.look(BLANK, device, sensor.Maxima())
    assert (sample.total, sample.reasons, sample.counters) == (61 * _GIB, None, None)
    (device / "gpu_metrics").write_bytes(table((3, 0), thm_gfx=180, spl=7))
    assert look(device, seen).reasons == 0x20


def _apu(roots: Roots) -> Path:
    return pci(
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


def test_an_apu_counts_vram_and_gtt(roots: Roots) -> None:
    device = _apu(roots)
    gpu = detect(roots=roots).gpus[0]
    assert (gpu.total, gpu.used, gpu.integrated) == (61 * _GIB, 3 * _GIB // 2, True)
    assert gpu.apart == _GIB // 2
    sample = look(device)
    assert (sample.temperature, sample.slowdown_at, sample.power) == (45.0, None, 25.0)
    assert (sample.total, sample.free, sample.memory_source) == (
        61 * _GIB,
        61 * _GIB - 3 * _GIB // 2,
        "driver",
    )


def test_missing_and_broken_files_are_unknown(roots: Roots) -> None:
    device = pci(roots, "0000:03:00.0", _AMD, mem_info_vram_total="garbage", gpu_busy_percent="")
    assert look(device) == BLANK
    gpu = detect(roots=roots).gpus[0]
    assert (gpu.total, gpu.free, gpu.integrated) == (None, None, None)


def test_used_memory_without_a_total_gives_no_free_memory(roots: Roots) -> None:
    device = pci(roots, "0000:03:00.0", _AMD, mem_info_vram_used=5)
    assert amd.memory(device) == (None, None, None)
    assert (look(device).total, look(device).used, look(device).free) == (None, None, None)


@pytest.mark.parametrize(
    ("total", "used", "expected"),
    [
        (0, 0, (None, None, None)),
        (-1, 5, (None, None, None)),
        (100, -5, (100, None, None)),
        (100, 101, (100, None, None)),
        (10**40, 5, (None, None, None)),
        (100, 40, (100, 40, None)),
    ],
)
def test_memory_that_cant_be_true_is_unknown(
    roots: Roots, total: int, used: int, expected: tuple[int | None, int | None, int | None]
) -> None:
    device = pci(roots, "0000:03:00.0", _AMD, mem_info_vram_total=total, mem_info_vram_used=used)
    assert amd.memory(device) == expected


@pytest.mark.parametrize("crit", [1000, 30_000, 49_000])
def test_a_limit_far_below_all_others_is_none(roots: Roots, crit: int) -> None:
    """It would stop all local work."""
    device = pci(
        roots, "0000:03:00.0", _AMD, hwmon__hwmon4__temp1_input=60_000, hwmon__hwmon4__temp1_crit=crit
    )
    assert (look(device).temperature, look(device).slowdown_at, look(device).headroom) == (60, None, None)


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
