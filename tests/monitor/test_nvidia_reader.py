"""The owner of NVML in the sensor child: what it asks and when, devices that sleep, are lost, and come back.

Each test runs in a child of its own on the stub, with the kernel's files in a folder and a clock of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.hardware.sysfs import Roots
from tests.hardware.folders import files, pci
from tests.nvml_stub.machine import FakeMachine

_NVIDIA = 0x10DE
_UUID = "GPU-00000000-0000-0000-0000-00000000000"
_HEAD = """
import os, pathlib
from dataclasses import asdict
from appliance.hardware import nvml
from appliance.hardware.sysfs import Roots
from appliance.monitor.child.nvidia_reader import NvidiaReader
from tests import nvml_stub
from tests.hardware.folders import files

state, log = pathlib.Path(os.environ["FAKE_NVML_STATE"]), pathlib.Path(os.environ["FAKE_NVML_LOG"])
roots = Roots(*(pathlib.Path({folder!r}) / name for name in ("sys", "proc", "share")))
now, result = [1000.0], []
reader = NvidiaReader(roots, lambda: now[0])

def put(**values):
    nvml_stub.write_state(state, **values)

def power(address, status):
    files(roots.sys / "bus/pci/devices" / address, power__runtime_status=status)

def read(seconds=1.0):
    now[0] += seconds
    rows = reader.read()
    result.append([[row.id[-1], row.temperature, row.asleep, row.trouble] for row in rows])
    return rows

def calls():
    found = log.read_text().splitlines() if log.exists() else []
    log.write_text("")
    return found
"""


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "sys", tmp_path / "proc", tmp_path / "share")


def run(laptop: FakeMachine, code: str) -> Any:
    logged = laptop.logging()
    return logged.json(_HEAD.format(folder=str(laptop.state.parent)) + code)


def two_cards(roots: Roots, first: str = "active", second: str = "active") -> None:
    for address, status in (("0000:01:00.0", first), ("0000:02:00.0", second)):
        pci(roots, address, _NVIDIA, power__runtime_status=status)


def test_a_sample_is_few_calls_and_each_absent_field_is_asked_once(laptop: FakeMachine) -> None:
    first, second, third = run(
        laptop, "for _ in range(3):\n    reader.read()\n    now[0] += 1\n    result.append(calls())"
    )
    assert second == third
    assert sorted(call.removesuffix(" 0") for call in second) == [
        "nvmlDeviceGetClockInfo", "nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetUtilizationRates",
    ]  # fmt: skip
    assert "nvmlDeviceGetFanSpeed 0" in first


def test_counters_are_one_call_a_sample(laptop: FakeMachine) -> None:
    laptop.set(counters=1, field__82=70)
    _, later = run(
        laptop, "for _ in range(2):\n    reader.read()\n    now[0] += 1\n    result.append(calls())"
    )
    assert later.count("nvmlDeviceGetFieldValues 0") == 1


def test_processes_are_read_every_ten_seconds_and_thresholds_every_minute(laptop: FakeMachine) -> None:
    counted = run(
        laptop,
        """
put(t_gpumax=87)
reader.read(); calls()
put(t_gpumax=57)
for second in range(120):
    now[0] += 1
    row = reader.read()[0]
    result.append(row.max_at)
made = [call.split()[0] for call in calls()]
often = [sum(word in call for call in made) for word in ("Threshold", "Processes")]
result = [result[0], result[-1], *often]
""",
    )
    assert counted == [87, 57, 6, 24]  # three thresholds each minute; pynvml calls twice for the processes


def test_no_call_is_made_after_letting_go(laptop: FakeMachine) -> None:
    made = run(
        laptop,
        "reader.read()\nreader.close()\nresult.append(calls()[-1])\nreader.close()\nresult.append(calls())",
    )
    assert made == ["nvmlShutdown", []]


def test_a_sleeping_card_beside_one_that_is_awake_is_never_touched_until_it_wakes(
    laptop: FakeMachine, roots: Roots
) -> None:
    two_cards(roots, first="suspended")
    laptop.set(count=2)
    asleep, touched, awake, after = run(
        laptop,
        """
for _ in range(70):
    rows = read(1)
asleep, touched = result[-1], [call for call in calls() if call.endswith(" 0")]
power("0000:01:00.0", "active")
rows = read(1)
awake = result[-1]
power("0000:02:00.0", "suspended")
calls()
read(1)
result = [asleep, touched, awake, [result[-1], [call for call in calls() if call.endswith(" 1")]]]
""",
    )
    assert touched == []
    assert asleep == [["0", None, True, None], ["1", 60, False, None]]
    assert awake == [["0", 60, False, None], ["1", 60, False, None]]
    assert after == [[["0", 60, False, None], ["1", None, True, None]], []]


def test_a_card_keeps_its_name_while_it_sleeps(laptop: FakeMachine, roots: Roots) -> None:
    two_cards(roots)
    files(roots.proc, placeholder="")
    laptop.set(count=2)
    run_through = """
read()
power("0000:01:00.0", "suspended")
read()
reader.close()
read()
power("0000:02:00.0", "suspended")
reader.close()
calls()
read()
result.append(calls())
"""
    *rows, made = run(laptop, run_through)
    assert [[row[0] for row in sample] for sample in rows] == [["0", "1"]] * 4
    assert [[row[2] for row in sample] for sample in rows] == [
        [False, False], [True, False], [True, False], [True, True],
    ]  # fmt: skip
    assert made == []


@pytest.mark.parametrize(
    ("code", "state"), [(15, "gpu_lost"), (16, "reset_required"), (8, "insufficient_power")]
)
def test_one_of_two_devices_is_lost_the_other_goes_on_and_it_comes_back(
    laptop: FakeMachine, code: int, state: str
) -> None:
    laptop.set(count=2)
    rows = run(
        laptop,
        f"""
put(count=2)
read()
put(count=2, err_all__1={code}, temp=70)
read(); read(0.1); read(1); read(2)
words = reader.trouble
put(count=2, temp=50)
read(120)
result.append([words, reader.trouble])
""",
    )
    *samples, (words, after) = rows
    lost = [["0", 70, False, None], ["1", None, False, state]]
    assert samples == [[["0", 60, False, None], ["1", 60, False, None]], *[lost] * 4,
                       [["0", 50, False, None], ["1", 50, False, None]]]  # fmt: skip
    assert words.startswith("Fake RTX 9000 Laptop GPU: ")
    assert after is None


def test_the_only_device_is_lost_and_nvml_is_let_go_of(laptop: FakeMachine) -> None:
    rows = run(
        laptop,
        """
read()
put(err_all__0=15)
calls()
read()
result.append(calls()[-1])
read(0.1)
result.append(calls())
put()
read(60)
""",
    )
    assert rows[1] == [["0", None, False, "gpu_lost"]]
    assert rows[2] == "nvmlShutdown"
    assert (rows[3], rows[4]) == ([["0", None, False, "gpu_lost"]], [])
    assert rows[5] == [["0", 60, False, None]]


def test_a_device_that_is_broken_from_the_start_has_a_row_and_later_its_name(laptop: FakeMachine) -> None:
    laptop.set(count=2, err__nvmlDeviceGetHandleByIndex_v2__1=8)
    rows = run(laptop, "read()\nput(count=2)\nread(120)\nread()")
    assert rows == [
        [["0", 60, False, None], ["1", None, False, "insufficient_power"]],
        *[[["0", 60, False, None], ["1", 60, False, None]]] * 2,
    ]


def test_a_device_of_somebody_else_is_no_row(laptop: FakeMachine) -> None:
    laptop.set(count=2, err__nvmlDeviceGetHandleByIndex_v2__1=4)
    assert run(laptop, "read()\nread()\nresult.append(reader.trouble)") == [
        [["0", 60, False, None]], [["0", 60, False, None]], None,
    ]  # fmt: skip


def test_retries_are_fewer_the_longer_it_is_lost(laptop: FakeMachine) -> None:
    starts = run(
        laptop,
        """
read()
put(err_all=15)
calls()
for _ in range(300):
    read(1)
result = sum(call == "nvmlInitWithFlags" for call in calls())
""",
    )
    assert 6 <= starts <= 12


def test_a_driver_that_goes_away_names_the_state_on_every_row(laptop: FakeMachine) -> None:
    laptop.set(count=2)
    rows = run(laptop, "read()\nput(err_all=9)\nread()\nread(59)\nput(count=2)\nread(2)")
    down = [["0", None, False, "driver_not_loaded"], ["1", None, False, "driver_not_loaded"]]
    assert rows[1:3] == [down, down]
    assert rows[3] == rows[0]
