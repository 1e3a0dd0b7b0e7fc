"""Every return code of NVML, at the start, on a device's handle and on one of its fields."""

from __future__ import annotations

from typing import get_args

import pytest

from appliance.hardware.troubles import trouble
from appliance.hardware.types import TroubleState
from tests.nvml_stub.machine import FakeMachine

CODES = (*range(1, 31), 31, 77, 999)
"""All of nvml.h, and two that nobody has given a meaning yet."""
_ASK = """
import os, pathlib
from appliance.hardware import nvml
from tests import nvml_stub
state = pathlib.Path(os.environ["FAKE_NVML_STATE"])

def said(*symbols):
    result = {}
    for code in CODES:
        nvml_stub.write_state(state, **nvml_stub.failing(code, symbols))
        try:
            with nvml.session():
                handle = nvml.query("nvmlDeviceGetHandleByIndex", 0)
                result[code] = nvml.query("nvmlDeviceGetTemperature", handle, 0)
                nvml_stub.write_state(state)
                again = nvml.query("nvmlDeviceGetTemperature", handle, 0)
                if result[code] is None and again is None:
                    result[code] = "absent"
        except nvml.NvmlDown as down:
            result[code] = down.trouble.state
    return result
"""


def said(laptop: FakeMachine, *symbols: str) -> dict[int, object]:
    """What each code means on these functions: a state, `absent`, or None for "ask again"."""
    found = laptop.json(f"CODES = {CODES}{_ASK}result = said(*{symbols!r})")
    return {int(code): value for code, value in found.items()}


AT_THE_START: dict[int, TroubleState] = {
    1: "not_ready", 3: "not_supported", 4: "no_permission", 8: "insufficient_power", 9: "driver_not_loaded",
    10: "no_answer", 11: "irq_issue", 12: "library_missing", 13: "not_supported", 14: "corrupted_inforom",
    15: "gpu_lost", 16: "reset_required", 17: "operating_system", 18: "version_mismatch", 20: "out_of_memory",
    23: "out_of_memory", 25: "not_supported", 26: "not_supported", 27: "not_ready",
}  # fmt: skip


def test_every_code_at_the_start_is_a_state(laptop: FakeMachine) -> None:
    expected: dict[int, object] = {code: AT_THE_START.get(code, "unknown_error") for code in CODES}
    expected |= {5: 60, 6: "no_gpu", 28: "no_gpu"}  # 5: it was initialised already
    assert said(laptop, "nvmlInitWithFlags") == expected


def test_every_code_on_a_handle_is_a_state(laptop: FakeMachine) -> None:
    expected: dict[int, object] = {code: AT_THE_START.get(code, "unknown_error") for code in CODES}
    expected |= {2: "gpu_lost", 6: "gpu_lost", 28: "gpu_lost", 5: "absent"}  # 5 makes no sense: no handle
    assert said(laptop, "nvmlDeviceGetHandleByIndex_v2") | {5: "absent"} == expected


def test_every_code_on_a_field_is_about_the_field_or_about_the_device(laptop: FakeMachine) -> None:
    expected: dict[int, object] = dict.fromkeys(CODES)
    expected |= dict.fromkeys((2, 3, 4, 13, 22, 24, 25, 26, 30), "absent")
    expected |= {
        1: "not_ready", 8: "insufficient_power", 9: "driver_not_loaded", 11: "irq_issue",
        12: "library_missing", 15: "gpu_lost", 16: "reset_required", 18: "version_mismatch", 28: "gpu_lost",
    }  # fmt: skip
    assert said(laptop, "nvmlDeviceGetTemperature") == expected


def test_a_device_that_answers_nothing_any_more_is_lost(laptop: FakeMachine) -> None:
    found = said(laptop, "nvmlDeviceGetTemperature", "nvmlDeviceGetUUID")
    assert (found[999], found[2]) == ("unknown_error", "gpu_lost")


@pytest.mark.parametrize("code", [15, 16])
def test_an_entry_of_the_field_values_can_tell_that_the_device_is_lost(
    laptop: FakeMachine, code: int
) -> None:
    laptop.set(ferr__269=code)
    assert (
        laptop.json(
            """
from appliance.hardware import nvml
result = "well"
with nvml.session():
    try:
        nvml.fields(nvml.query("nvmlDeviceGetHandleByIndex", 0), (269, 82))
    except nvml.NvmlDown as down:
        result = down.trouble.state
"""
        )
        == {15: "gpu_lost", 16: "reset_required"}[code]
    )


def test_absent_entries_are_asked_once_and_none_at_all_makes_no_call(laptop: FakeMachine) -> None:
    logged = laptop.logging()
    logged.set(field__269=1 << 40, ferr__271=999)
    assert logged.json(
        """
from appliance.hardware import nvml
with nvml.session():
    device = nvml.query("nvmlDeviceGetHandleByIndex", 0)
    result = [nvml.fields(device, (269, 270, 271)), nvml.fields(device, (269,))]
    result += [nvml.fields(device, (270,)) for _ in range(5)]
"""
    ) == [{"269": 1 << 40}, {"269": 1 << 40}, {}, {}, {}, {}, {}]
    assert logged.count()["nvmlDeviceGetFieldValues"] == 2


@pytest.mark.parametrize("state", get_args(TroubleState))
def test_each_state_has_one_message_and_one_fix_for_people(state: TroubleState) -> None:
    why = trouble(state)
    assert why.state == state
    assert why.message.endswith(".")
    assert why.fix.endswith(".")
    assert "NVML_" not in str(why)
    assert len({str(trouble(one)) for one in get_args(TroubleState)}) == len(get_args(TroubleState))


def test_a_function_that_the_library_does_not_export_is_absent(laptop: FakeMachine) -> None:
    assert laptop.without("nvmlDeviceGetMarginTemperature").json(
        """
from appliance.hardware import nvml
with nvml.session():
    device = nvml.query("nvmlDeviceGetHandleByIndex", 0)
    call = "nvmlDeviceGetMarginTemperature"
    result = [nvml.query(call, device), nvml.refusal(call, device)]
"""
    ) == [None, 13]


def test_a_library_without_the_start_is_too_old(laptop: FakeMachine) -> None:
    assert (
        laptop.without("nvmlInitWithFlags").json(
            """
from appliance.hardware import nvml
try:
    nvml.start()
except nvml.NvmlDown as down:
    result = down.trouble.state
"""
        )
        == "not_supported"
    )
