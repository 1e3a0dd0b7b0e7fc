"""The stub itself: what moves, what fails, and what it notes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests import nvml_stub
from tests.nvml_stub.machine import FakeMachine, fake_machine
from tests.nvml_stub.profiles import PROFILES

_READ = """
import pynvml
pynvml.nvmlInit()
one = pynvml.nvmlDeviceGetHandleByIndex(0)
degrees = lambda: pynvml.nvmlDeviceGetTemperature(one, 0)
"""


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return fake_machine(nvml_stub.build(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("ago", "loop", "value"),
    [(-5, False, 60), (0.2, False, 60), (50, False, 80), (100, False, 100), (150, False, 95),
     (900, False, 90), (250, True, 80), (450, True, 80)],
)  # fmt: skip
def test_a_curve_moves_by_the_clock(machine: FakeMachine, ago: float, loop: bool, value: int) -> None:
    points = nvml_stub.curve((0, 60), (100, 100), (200, 90), start=time.time() - ago, loop=loop)
    machine.set(curve__temp=points)
    assert machine.json(f"{_READ}result = degrees()") == pytest.approx(value, abs=1)
    machine.set(step__temp=points)
    stairs = {60: 60, 80: 60, 100: 100, 95: 100, 90: 90}
    assert machine.json(f"{_READ}result = degrees()") == stairs[value]


def test_energy_limits_uuid_and_fan_are_there(machine: FakeMachine) -> None:
    machine.set(energy_mj=1 << 40, management_limit_mw=90_000, fan_rpm=1200, count=2)
    assert machine.json(
        f"""{_READ}
two = pynvml.nvmlDeviceGetHandleByUUID(b"GPU-00000000-0000-0000-0000-000000000001")
bus = pynvml.nvmlDeviceGetHandleByPciBusId(b"0000:02:00.0")
result = [
    pynvml.nvmlDeviceGetTotalEnergyConsumption(one), pynvml.nvmlDeviceGetPowerManagementLimit(one),
    pynvml.nvmlDeviceGetFanSpeedRPM(one), pynvml.nvmlDeviceGetIndex(two), pynvml.nvmlDeviceGetIndex(bus),
]
"""
    ) == [1 << 40, 90_000, 1200, 1, 1]


def test_counters_grow_while_their_bit_is_set(machine: FakeMachine) -> None:
    machine.set(counters=1, reasons=0x20, field__269=1_000)
    first, second, brake = machine.json(
        f"""{_READ}
import time
read = lambda: [entry.value.ullVal for entry in pynvml.nvmlDeviceGetFieldValues(one, [269, 271])]
first = read()
time.sleep(0.2)
second = read()
result = [first[0], second[0], second[1]]
"""
    )
    assert 1_000 <= first < second
    assert 0.2e9 <= second - first < 2e9
    assert brake == 0


def test_calls_are_noted_with_their_device(machine: FakeMachine) -> None:
    logged = machine.logging()
    logged.json(f"{_READ}degrees()")
    assert logged.calls() == [
        "nvmlInitWithFlags",
        "nvmlDeviceGetHandleByIndex_v2 0",
        "nvmlDeviceGetTemperature 0",
    ]
    assert logged.count()["nvmlDeviceGetTemperature"] == 1


@pytest.mark.parametrize("name", PROFILES)
def test_every_named_machine_answers(machine: FakeMachine, name: str) -> None:
    machine.set(**PROFILES[name])
    assert machine.json(f"{_READ}result = pynvml.nvmlDeviceGetName(one)") == PROFILES[name]["name"]
