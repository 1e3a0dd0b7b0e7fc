"""What one look at a device gives, on machines with a name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nvml_stub import profiles
from tests.nvml_stub.machine import FakeMachine
from tests.nvml_stub.profiles import Profile

_LOOK = """
from dataclasses import asdict
from appliance.hardware import nvidia, nvml
from appliance.hardware.sensors import nvidia as sensor
MIB = 1 << 20

def look(index=0, **more):
    handle = dict(nvidia.handles())[index]
    gpu = nvidia.identify(index, handle)
    row = sensor.look(gpu, handle, sensor.limits(handle), sensor.clocks(handle), **more)
    return {**asdict(row), "processes": sensor.processes(handle, gpu.total)}
with nvml.session():
"""


def look(laptop: FakeMachine, index: int = 0, more: str = "") -> dict[str, Any]:
    found: dict[str, Any] = laptop.json(f"{_LOOK}    result = look({index}, {more})")
    return found


def on(laptop: FakeMachine, profile: Profile, *names: str) -> tuple[object, ...]:
    laptop.set(**profile)
    found = look(laptop)
    return tuple(found[name] for name in names)


def test_a_gaming_laptop_at_its_power_cap(laptop: FakeMachine) -> None:
    laptop.set(**profiles.GAMING_LAPTOP)
    found = look(laptop)
    assert (found["temperature"], found["headroom"], found["margin"]) == (71, 31, 16)
    assert (found["slowdown_at"], found["shutdown_at"], found["max_at"]) == (102, 105, 87)
    assert (found["clock"], found["clock_max"], found["memory_clock"]) == (1980, 3105, 8001)
    assert (found["power"], found["power_limit"], found["reasons"]) == (98.4, 115, 0x4)
    assert (found["utilisation"], found["memory_utilisation"]) == (96, 61)
    assert (found["fan"], found["fan_rpm"], found["memory_temperature"]) == (None, None, None)
    assert found["total"] == found["free"] + found["used"] + found["reserved"]
    assert (found["memory_source"], found["trouble"]) == ("driver", None)
    assert set(found["counters"]) == {
        "sw_thermal", "hw_thermal", "policy_thermal", "power_brake", "power_cap", "sync_boost",
    }  # fmt: skip


def test_a_laptop_that_always_throttles_tells_so_without_power_readings(laptop: FakeMachine) -> None:
    names = ("temperature", "reasons", "headroom", "max_at", "margin", "power", "power_limit")
    found = on(laptop, profiles.THINKPAD_THAT_ALWAYS_THROTTLES, *names)
    assert found == (55, 0x60, 39, 57, None, None, None)


def test_margins_stand_in_for_thresholds(laptop: FakeMachine) -> None:
    names = ("margin", "headroom", "slowdown_at", "shutdown_at", "max_at", "fan", "fan_rpm")
    assert on(laptop, profiles.DESKTOP_ADA, *names) == (20, 22, 86, 91, 84, 42, 1350)


def test_unified_memory_comes_from_the_ram_and_only_then(laptop: FakeMachine) -> None:
    shared = "shared=lambda: (128 << 30, 90 << 30)"
    laptop.set(**profiles.GB10)
    found = look(laptop, more=shared)
    assert (found["total"], found["free"], found["used"]) == (128 << 30, 90 << 30, None)
    assert (found["memory_source"], found["temperature"], found["headroom"]) == ("ram", 58, 29)
    assert [look(laptop)[name] for name in ("total", "memory_source")] == [None, None]
    for state in ({"total_mib": 0, "used_mib": 0, "reserved_mib": 0},):
        laptop.set(**state)
        assert look(laptop, more=shared)["memory_source"] == "ram"
    for code in (4, 10, 999):  # not allowed, too slow, or broken: not a device that shares the RAM
        laptop.set(err__nvmlDeviceGetMemoryInfo=code, err__nvmlDeviceGetMemoryInfo_v2=code)
        assert [look(laptop, more=shared)[name] for name in ("total", "memory_source")] == [None, None]


def test_an_old_driver_without_the_newer_functions(laptop: FakeMachine) -> None:
    old = laptop.without(*profiles.OLD_DRIVER_LACKS)
    names = (
        "temperature",
        "headroom",
        "margin",
        "reasons",
        "fan",
        "fan_rpm",
        "reserved",
        "free",
        "processes",
    )
    found = on(old, profiles.OLD_DRIVER, *names)
    assert found == (60, 34, None, 0, 35, None, None, 3196 << 20, [[4242, 512 << 20]])


def test_wsl(laptop: FakeMachine) -> None:
    names = ("utilisation", "memory_utilisation", "free", "reserved", "processes", "temperature")
    assert on(laptop, profiles.WSL, *names) == (None, None, 8240 << 20, None, [[4242, None]], 60)


def test_a_virtual_gpu_tells_memory_and_no_heat(laptop: FakeMachine) -> None:
    names = ("temperature", "headroom", "slowdown_at", "margin", "power", "fan", "free")
    assert on(laptop, profiles.VGPU, *names) == (None, None, None, None, None, None, 7092 << 20)


def test_two_cards_have_values_of_their_own(laptop: FakeMachine) -> None:
    laptop.set(**profiles.TWO_CARDS)
    names = ("name", "temperature", "fan", "total")
    assert [[look(laptop, index)[name] for name in names] for index in (0, 1)] == [
        ["NVIDIA RTX A2000", 48, 30, 6138 << 20],
        ["NVIDIA GeForce RTX 3060", 77, 68, 12_288 << 20],
    ]


@pytest.mark.parametrize(
    ("state", "name", "value"),
    [
        ({"temp": 0}, "temperature", None), ({"temp": 150}, "temperature", None),
        ({"temp": 149}, "temperature", 149),
        ({"field__82": 0}, "memory_temperature", None), ({"field__82": 88}, "memory_temperature", 88),
        ({"t_slowdown": 255}, "slowdown_at", None), ({"t_shutdown": 0}, "shutdown_at", None),
        ({"power_mw": -5}, "power", None), ({"power_mw": 0}, "power", None),
        ({"power_mw": 1 << 30}, "power", None),
        ({"limit_mw": -1}, "power_limit", None), ({"util": 101}, "utilisation", None),
        ({"util": 0}, "utilisation", 0),
        ({"memutil": 5000}, "memory_utilisation", None), ({"fan": 120}, "fan", 120),
        ({"fan": 9999}, "fan", None),
        ({"fan_rpm": 0}, "fan_rpm", 0), ({"gclk": 0}, "clock", None),
        ({"mclk": 1 << 30}, "memory_clock", None),
        ({"margin": -400}, "margin", None), ({"margin": -3}, "margin", -3),
        ({"reasons": 1 << 40 | 0x20}, "reasons", 1 << 40 | 0x20), ({"used_mib": 9000}, "free", None),
    ],
)  # fmt: skip
def test_what_can_not_be_is_unknown(laptop: FakeMachine, state: Profile, name: str, value: object) -> None:
    laptop.set(**state)
    assert look(laptop)[name] == value


def test_counters_are_nanoseconds_of_64_bits_read_in_one_call(laptop: FakeMachine) -> None:
    logged = laptop.logging()
    logged.set(field__269=1 << 45, field__75=7, ferr__270=999)
    assert look(logged)["counters"] == {"sw_thermal": 1 << 45, "policy_thermal": 7}
    assert logged.count()["nvmlDeviceGetFieldValues"] == 2  # and the margins


def test_a_counter_of_another_type_is_read_by_its_type(laptop: FakeMachine) -> None:
    laptop.set(field__269=77, ftype__269=1, field__270=9, ftype__270=99)
    assert look(laptop)["counters"] == {"sw_thermal": 77}


@pytest.mark.parametrize(
    ("slowdown", "shutdown", "expected"),
    [
        (94, 97, [94, 97]),
        (5, 6, [None, None]),
        (110, 97, [None, 97]),
        (102, 0, [102, None]),
        (94, 60, [94, None]),
    ],
)
def test_a_limit_that_no_gpu_has_would_stop_all_work_and_is_none(
    laptop: FakeMachine, slowdown: int, shutdown: int, expected: list[int | None]
) -> None:
    laptop.set(temp=60, t_slowdown=slowdown, t_shutdown=shutdown, t_gpumax=87)
    found = laptop.json(
        "from appliance.hardware import nvidia, nvml\n"
        "from appliance.hardware.sensors import nvidia as sensor\n"
        "with nvml.session():\n"
        "    known = sensor.limits(nvidia.handles()[0][1])\n"
        "result = [known.slowdown, known.shutdown]"
    )
    assert found == expected
