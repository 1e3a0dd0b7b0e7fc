"""The machine in words: what is unknown is n/a, what is hot says why, and no line is wider than 80."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.cli.machine_text import WORDS, reasons_in_words
from appliance.cli.status_text import status_lines
from appliance.client import StatusSnapshot
from appliance.hardware.sensors import REASONS

GPU = {
    "id": "GPU-1", "name": "NVIDIA GeForce RTX 4070 Laptop GPU", "total": 8 << 30, "free": 2 << 30,
    "temperature": 91.2, "slowdown_at": 93.0, "memory_temperature": 88.0, "utilisation": 97.0, "power": 79.6,
    "power_limit": 115.0, "clock": 1_230.0, "fan": 63.0, "state": "throttled", "factor": 0.6,
    "reasons": ["SwPowerCap", "SwThermalSlowdown", "HwThermalSlowdown"], "age_s": 0.4, "slowdown_in_s": 42.0,
}  # fmt: skip


def text(*gpus: dict[str, Any], **more: Any) -> str:
    document = {"daemon": {"url": "http://127.0.0.1:1", "pid": 1}, "gpus": list(gpus), "engines": [], **more}
    lines = list(status_lines(StatusSnapshot.parse(document)))
    assert max(map(len, lines)) <= 80, lines
    return "\n".join(lines)


def test_a_gpu_that_tells_all() -> None:
    found = text(GPU)
    for part in (
        "2.00 GiB free of 8.00 GiB", "91 °C (slows at 93)", "memory 88 °C", "97 % busy", "80 of 115 W",
        "1230 MHz", "fan 63 %", "throttled x0.60", "at its power limit", "slowed by heat",
        "slows in 42 s at this rate",
    ):  # fmt: skip
        assert part in found, part
    assert found.count("slowed by heat") == 1
    assert "at this rate" not in text(GPU | {"slowdown_in_s": 0.0}), "it is there"
    assert " ago" not in found


def test_a_gpu_that_tells_nothing() -> None:
    found = text({"id": "GPU-1", "name": "Old"})
    for part in (
        "n/a free of n/a",
        "temperature n/a",
        "n/a busy",
        "power n/a",
        "clock n/a",
        "fan n/a",
        "unknown",
    ):
        assert part in found, part
    assert " 0 " not in found.split("Queue")[0].split("GPU")[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"asleep": True}, "asleep, and left so"),
        ({"trouble": "gpu_lost"}, "lost: it does not answer any more"),
        ({"trouble": "a_word_of_tomorrow"}, "can't be read (a_word_of_tomorrow)"),
        ({"watched": False}, "no engine uses it"),
    ],
)
def test_a_gpu_that_is_not_read_shows_no_old_figures(changes: dict[str, Any], words: str) -> None:
    found = text(GPU | changes)
    assert words in found
    assert "°C" not in found


def test_who_tells_the_memory_is_said_where_it_is_not_the_driver() -> None:
    assert "says" not in text(GPU)
    assert "as the engine says" in " ".join(text(GPU | {"memory_source": "engine"}).split())
    both = {"driver": 8 << 30, "engine": 4 << 30, "build": "llama-server b1"}
    assert "the engine says 4.00 GiB" in " ".join(text(GPU | {"disagrees": both}).split())
    assert "says" not in text(GPU | {"disagrees": None})


def test_old_readings_say_how_old_they_are() -> None:
    assert "read 40 s ago" in text(GPU | {"age_s": 40.0})
    assert " ago" not in text(GPU | {"age_s": 6.0}), "idle, it is looked at every five seconds"


def test_reasons_have_words() -> None:
    assert set(WORDS) == set(REASONS.values())
    assert reasons_in_words(("GpuIdle",)) == []
    assert reasons_in_words(("0x800",)) == ["clocks lowered (0x800)"]
    assert reasons_in_words(None) == []


def test_cpu_memory_and_power() -> None:
    cpu = {"temperature": 74.0, "high_at": 100.0, "clock": 2_800.4, "state": "cool", "factor": 1.0}
    host = {"cpu_percent": 12.4, "ram_total": 16 << 30, "ram_available": 4 << 30, "swap_total": 8 << 30}
    found = text(cpu=cpu, host=host | {"swap_used": 3 << 29, "battery": {"percent": 80.0}}, power="battery")
    assert "CPU       12 % busy · 74 °C (slows at 100) · 2800 MHz · cool" in found
    assert "Memory    4.00 GiB free of 16.00 GiB · swap 1.50 GiB of 8.00 GiB used" in found
    assert "Power     on battery at 80 %" in found
    quiet = text(host=host | {"swap_used": 0})
    assert "swap" not in quiet
    assert "Power" not in quiet
    assert "Power     on mains" in text(power="ac")
    assert "Power     source n/a, battery at n/a" in text(host={"battery": {}}, power="unknown")


def test_heat_says_how_much_slower_and_who_waits() -> None:
    found = text(thermal="throttled", factor=0.45, eases="heat slows the machine")
    assert "Heat      throttled · speed x0.45" in found
    assert "          Batch work waits first: heat slows the machine" in found
    assert "Batch" not in text(thermal="critical", factor=1.0, eases="the machine is critically hot")
    assert "Batch" not in text(thermal="cool", factor=1.0)
    assert "Heat      n/a" in text()


def test_what_is_wrong_with_the_sensors_is_said_once() -> None:
    message = "NVML is not installed. Install the driver."
    assert f"Sensors   {message}" in text(thermal_message=message)
    note = {"code": "sensor_stale", "detail": message}
    assert text(thermal_message=message, notes=[note]).count(message) == 1
