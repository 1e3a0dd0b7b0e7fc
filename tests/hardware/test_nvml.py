"""The door to NVML, with real pynvml on the C stub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests import nvml_stub
from tests.nvml_stub.machine import FakeMachine

_NOBODY = 1 << 30
"""Above every pid that Linux gives."""
_DETECT = "from appliance.hardware import detect\nresult = detect().to_json()"
_QUERY = """
from appliance.hardware import nvml
def first():
    return nvml.query("nvmlDeviceGetHandleByIndex", 0)
def ask(call, *more):
    try:
        with nvml.session():
            return nvml.query(call, first(), *more)
    except nvml.NvmlDown as down:
        return down.trouble.state
"""


def test_a_laptop_gpu_is_found_with_its_memory(laptop: FakeMachine) -> None:
    laptop.set(total_mib=8192, used_mib=1024, reserved_mib=300, pid=_NOBODY)
    machine = laptop.json(_DETECT)
    assert machine["gpus"] == [
        {
            "id": "GPU-00000000-0000-0000-0000-000000000000",
            "index": 0,
            "name": "Fake RTX 9000 Laptop GPU",
            "backend": "cuda",
            "total": 8192 << 20,
            "free": (8192 - 1024 - 300) << 20,
            "used": 1024 << 20,
            "driver": "999.10",
            "integrated": False,
            "pci": "0000:01:00.0",
            "asleep": False,
            "holders": [{"pid": _NOBODY, "name": f"process {_NOBODY}", "n_bytes": 512 << 20}],
            "apart": None,
        }
    ]
    assert machine["notes"] == [] or all("container" in note for note in machine["notes"])


def test_two_gpus_have_two_identities(laptop: FakeMachine) -> None:
    laptop.set(count=2)
    gpus = laptop.json(_DETECT)["gpus"]
    assert [(gpu["id"][-1], gpu["pci"]) for gpu in gpus] == [("0", "0000:01:00.0"), ("1", "0000:02:00.0")]


def test_unified_memory_is_unknown_and_not_zero(laptop: FakeMachine) -> None:
    laptop.set(err__nvmlDeviceGetMemoryInfo=3, err__nvmlDeviceGetMemoryInfo_v2=3)
    machine = laptop.json(_DETECT)
    assert [(g["total"], g["free"], g["used"], g["integrated"]) for g in machine["gpus"]] == [(None,) * 4]
    assert any("memory" in note for note in machine["notes"])


def test_a_total_of_zero_is_unknown(laptop: FakeMachine) -> None:
    laptop.set(total_mib=0, used_mib=0, reserved_mib=0)
    assert laptop.json(_DETECT)["gpus"][0]["total"] is None


@pytest.mark.parametrize("code", [13, 25, 3, 999])
def test_memory_falls_back_to_version_1(laptop: FakeMachine, code: int) -> None:
    laptop.set(err__nvmlDeviceGetMemoryInfo_v2=code, total_mib=6144, used_mib=1000, reserved_mib=144)
    assert laptop.json(_DETECT)["gpus"][0]["free"] == 5000 << 20


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (9, "not loaded"),
        (12, "no NVIDIA driver library"),
        (15, "fell off the bus"),
        (18, "Restart the machine"),
    ],
)
def test_each_failure_of_the_driver_has_one_message_with_a_fix(
    laptop: FakeMachine, code: int, words: str
) -> None:
    laptop.set(err__nvmlInitWithFlags=code)
    machine = laptop.json(_DETECT)
    assert machine["gpus"] == []
    assert words in machine["notes"][0]
    assert machine["ram_total"] > 0


@pytest.mark.parametrize("code", [3, 4, 9, 12, 15, 18, 999])
def test_no_code_on_any_symbol_breaks_the_detection(laptop: FakeMachine, code: int) -> None:
    laptop.set(**nvml_stub.failing(code))
    machine = laptop.json(_DETECT)
    assert all(gpu["total"] is None for gpu in machine["gpus"])
    assert machine["notes"]


def test_a_gpu_that_is_lost_between_two_calls_stays_in_the_list(laptop: FakeMachine) -> None:
    laptop.set(err__nvmlDeviceGetUUID=15)
    machine = laptop.json(_DETECT)
    assert [(gpu["name"], gpu["total"]) for gpu in machine["gpus"]] == [("NVIDIA GPU", None)]
    assert "fell off the bus" in machine["notes"][0]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (0, 60), (2, None), (3, None), (4, None), (10, None), (13, None), (25, None), (999, None),
        (15, "gpu_lost"), (16, "reset_required"), (9, "driver_not_loaded"),
    ],
)  # fmt: skip
def test_a_code_on_one_field_means_absent_or_lost(laptop: FakeMachine, code: int, result: object) -> None:
    laptop.set(err__nvmlDeviceGetTemperature=code)
    assert laptop.json(f'{_QUERY}result = ask("nvmlDeviceGetTemperature", 0)') == result


def test_an_unknown_error_of_a_device_that_no_longer_answers_is_a_lost_device(laptop: FakeMachine) -> None:
    laptop.set(err__nvmlDeviceGetTemperature=999, err__nvmlDeviceGetUUID=999)
    assert laptop.json(f'{_QUERY}result = ask("nvmlDeviceGetTemperature", 0)') == "unknown_error"


def test_an_absent_field_is_asked_once_until_the_next_start(laptop: FakeMachine) -> None:
    laptop.set(fan=40)
    assert laptop.json(
        f"""{_QUERY}
from tests import nvml_stub
import os, pathlib
state = pathlib.Path(os.environ["FAKE_NVML_STATE"])
fan = lambda: nvml.query("nvmlDeviceGetFanSpeed", first())
result = []
with nvml.session():
    nvml_stub.write_state(state)
    result.append(fan())
    nvml_stub.write_state(state, fan=55)
    result.append(fan())
with nvml.session():
    result.append(fan())
"""
    ) == [None, None, 55]


def test_a_field_absent_on_one_device_is_still_asked_on_the_other(laptop: FakeMachine) -> None:
    laptop.set(count=2)
    assert laptop.json(
        f"""{_QUERY}
from tests import nvml_stub
import os, pathlib
state = pathlib.Path(os.environ["FAKE_NVML_STATE"])
with nvml.session():
    one, two = (nvml.query("nvmlDeviceGetHandleByIndex", i) for i in (0, 1))
    first_answer = nvml.query("nvmlDeviceGetFanSpeed", one)
    nvml_stub.write_state(state, count=2, fan=55)
    result = [first_answer, *(nvml.query("nvmlDeviceGetFanSpeed", device) for device in (one, two))]
"""
    ) == [None, None, 55]


def test_a_function_that_the_driver_or_the_binding_lacks_is_none(laptop: FakeMachine) -> None:
    assert laptop.json(f'{_QUERY}result = ask("nvmlDeviceGetTotalEnergyConsumption")') is None
    assert laptop.json(f'{_QUERY}result = ask("nvmlDeviceGetSomethingOfTheYear2031")') is None


def test_an_old_driver_without_this_version_of_a_function_is_none(laptop: FakeMachine) -> None:
    laptop.set(err__nvmlDeviceGetComputeRunningProcesses_v3=13)
    assert laptop.json(f'{_QUERY}result = ask("nvmlDeviceGetComputeRunningProcesses")') is None


def test_field_values_are_read_by_their_own_code_and_type(laptop: FakeMachine) -> None:
    laptop.set(field__269=12345678901, field__194=7)
    assert laptop.json(
        f"""{_QUERY}
with nvml.session():
    found = nvml.fields(first(), (269, 194, 82))
    result = [found.get(number) for number in (269, 194, 82)]
"""
    ) == [12345678901, 7, None]


def test_without_the_library_there_is_one_named_state(laptop: FakeMachine, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    bare = replace(laptop, env={**laptop.env, "LD_LIBRARY_PATH": str(tmp_path)})
    assert bare.json(f'{_QUERY}result = ask("nvmlDeviceGetName")') == "library_missing"
    assert bare.json(_DETECT)["gpus"] == []
