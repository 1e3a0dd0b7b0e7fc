"""The lines between the sensor child and the daemon."""

from __future__ import annotations

import json

import pytest

from appliance.hardware import Battery
from appliance.hardware.sensors import CpuSample, GpuSample, Sample, reason_names
from appliance.monitor import DeviceHeat
from appliance.monitor.snapshot import gpu_view
from appliance.monitor.wire import parse, to_line

FULL = Sample(
    gpus=(
        GpuSample(
            "GPU-1", 0, "One", "cuda", total=9, free=5, used=3, reserved=1, memory_source="driver",
            temperature=71.0, memory_temperature=80.0, slowdown_at=94.0, shutdown_at=97.0, max_at=87.0,
            headroom=23.0, margin=-2.0, reasons=0x24, counters={"sw_thermal": 7, "power_cap": 8},
            clock=1500.0, clock_max=2100.0, memory_clock=7000.0, memory_clock_max=8000.0, power=80.5,
            power_limit=115.0, utilisation=50.0, memory_utilisation=20.0, fan=30.0, fan_rpm=1200.0,
            processes=((4242, 512), (4243, None)), trouble="gpu_lost",
        ),
        GpuSample("pci:1", 1, "Two", "rocm", asleep=True),
    ),
    cpu=CpuSample("CPU", 70.0, 95.0, 105.0, 12, 2400.0, 4800.0),
    cpu_percent=12.5,
    ram_total=16,
    ram_available=8,
    swap_total=4,
    swap_used=1,
    battery=Battery(80.0, None),
    trouble="a sentence",
    skipped=("nvmlDeviceGetFanSpeed",),
)  # fmt: skip


def test_a_sample_survives_its_line() -> None:
    assert parse(to_line(FULL).encode()) == FULL


@pytest.mark.parametrize("line", [b"", b"garbage\n", b"[]", b"{}", b'{"gpus": 3}', b"\xff\xfe", b'{"gpus": '])
def test_a_line_that_is_no_sample_is_none(line: bytes) -> None:
    assert parse(line) is None


def test_values_of_a_wrong_type_are_unknown() -> None:
    gpu = {
        "id": "x", "name": "\x1b[31mred", "backend": "quantum", "index": "zero", "temperature": "hot",
        "reasons": -1, "power": True, "processes": [[1], ["a", 2], [3, "b"], 7], "free": 1.5, "asleep": 1,
    }  # fmt: skip
    raw = {"gpus": [gpu, "no gpu"], "cpu_percent": None, "ram_total": [], "battery": {"plugged": "yes"}}
    sample = parse(json.dumps(raw).encode())
    expected = GpuSample("x", 0, "[31mred", "vulkan", processes=((3, None),))
    assert sample == Sample(gpus=(expected,), battery=Battery(None, None))


def test_not_a_number_is_unknown() -> None:
    sample = parse(b'{"gpus": [], "cpu_percent": NaN, "ram_total": Infinity}')
    assert sample == Sample()


def test_reasons_have_names_and_unknown_bits_a_number() -> None:
    assert reason_names(0x24) == ("SwPowerCap", "SwThermalSlowdown")
    assert reason_names(1 << 20) == ("0x100000",)
    assert reason_names(0) == ()
    assert reason_names(None) is None  # not readable is not "no throttling"


@pytest.mark.parametrize(
    ("processes", "pids", "used"),
    [
        (((1, 100), (2, 50), (3, 7)), {1, 2}, 150),
        (((1, 100), (2, None)), {1, 2}, None),
        (((1, 100),), {9}, None),
        (((1, 100),), set(), None),
        (None, {1}, None),
    ],
)
def test_memory_of_the_engine_is_unknown_rather_than_wrong(
    processes: tuple[tuple[int, int | None], ...] | None, pids: set[int], used: int | None
) -> None:
    sample = GpuSample("x", 0, "X", "cuda", processes=processes)
    assert gpu_view(sample, DeviceHeat("cool"), 0.0, pids).used_by_engine == used


def test_a_number_that_no_column_holds_is_unknown() -> None:
    raw = {"gpus": [{"id": "x", "total": 10**40, "free": (1 << 63) - 1}], "ram_total": 1 << 63}
    sample = parse(json.dumps(raw).encode())
    assert sample is not None
    assert (sample.gpus[0].total, sample.gpus[0].free, sample.ram_total) == (None, (1 << 63) - 1, None)
