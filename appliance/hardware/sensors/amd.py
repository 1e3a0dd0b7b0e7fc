"""One look at one AMD GPU through sysfs and hwmon. Units: the kernel's amdgpu documentation.

Every read wakes a sleeping card, so who calls looks at `power/runtime_status` first. Temperatures are told
apart by their labels: `junction` (the hot spot) before `edge`, `mem` by itself. `crit` is where the firmware
lowers the clocks, `emergency` where it switches the card off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.hardware.amd import hwmon_of, memory
from appliance.hardware.sensors import believed, gpu_metrics
from appliance.hardware.sensors.gpu_metrics import Throttling
from appliance.hardware.sensors.values import GpuSample
from appliance.hardware.sysfs import folders, read_int, read_text

_NEAR = 5.0
"""Degrees under the hot spot's limit at which the bit that says "hot spot" is believed."""
_LEVEL = re.compile(r":\s*(\d+)\s*mhz(\s*\*)?", re.IGNORECASE)
"""A line of pp_dpm_*: `1: 2482Mhz *`; the star is at the current one."""
_MOST_TABLE = 4096


@dataclass(frozen=True, slots=True)
class Maxima:
    """The highest clocks, MHz: they do not change, and reading them asks the firmware."""

    graphics: float | None = None
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class Sensor:
    """One temperature with its own limits."""

    celsius: float | None
    slowdown_at: float | None
    shutdown_at: float | None


def maxima(device: Path) -> Maxima:
    """The highest level of each clock."""
    return Maxima(
        *(max((mhz for mhz, _ in _levels(device, name)), default=None) for name in ("sclk", "mclk"))
    )


def look(
    blank: GpuSample, device: Path, highest: Maxima, before: Throttling | None = None
) -> tuple[GpuSample, Throttling]:
    """Everything that changes from second to second, and what the next look compares its counters with."""
    hwmon = hwmon_of(device)
    sensors = _sensors(hwmon)
    main = next(
        (sensors[name] for name in ("junction", "edge") if name in sensors and sensors[name].celsius), _NONE
    )
    room = None if main.celsius is None or main.slowdown_at is None else main.slowdown_at - main.celsius
    throttling = _throttling(device)
    sample = replace(
        _with_memory(blank, device),
        temperature=main.celsius,
        slowdown_at=main.slowdown_at,
        shutdown_at=main.shutdown_at,
        headroom=room,
        memory_temperature=sensors.get("mem", _NONE).celsius,
        reasons=gpu_metrics.reasons(throttling, before, near_hot_spot=room is not None and room <= _NEAR),
        clock=_clock(device, hwmon, "sclk"),
        memory_clock=_clock(device, hwmon, "mclk"),
        clock_max=highest.graphics,
        memory_clock_max=highest.memory,
        power=_first(hwmon, "power1_average", "power1_input"),
        power_limit=believed.watts(read_int(hwmon / "power1_cap"), 1e6),
        utilisation=_percent(read_int(device / "gpu_busy_percent")),
        memory_utilisation=_percent(read_int(device / "mem_busy_percent")),
        fan=_fan(hwmon),
        fan_rpm=_scaled(read_int(hwmon / "fan1_input"), 1, believed.MOST_RPM, least=0),
    )
    return sample, throttling


_NONE = Sensor(None, None, None)


def _with_memory(blank: GpuSample, device: Path) -> GpuSample:
    """An APU counts the GTT too: what it has set aside, and what it may take of the RAM."""
    total, used, _ = memory(device)
    free = total - used if total is not None and used is not None and used <= total else None
    return replace(
        blank, total=total, used=used, free=free, memory_source="driver" if total is not None else None
    )


def _sensors(hwmon: Path) -> Mapping[str, Sensor]:
    found: dict[str, Sensor] = {}
    for file in folders(hwmon, "temp*_input"):
        stem = file.name.removesuffix("_input")
        label = read_text(hwmon / f"{stem}_label") or "edge"  # kernels before 4.20 have one, without a label
        celsius = believed.milli_degrees(read_int(hwmon / f"{stem}_input"))
        crit, emergency = (
            believed.limit(believed.milli_degrees(read_int(hwmon / f"{stem}_{word}")))
            for word in ("crit", "emergency")
        )
        found[label] = Sensor(celsius, crit, emergency)
    return found


def _throttling(device: Path) -> Throttling:
    try:
        with (device / "gpu_metrics").open("rb") as file:
            return gpu_metrics.parse(file.read(_MOST_TABLE))
    except OSError:
        return Throttling()


def _clock(device: Path, hwmon: Path, name: str) -> float | None:
    """By the label in hwmon, else the level with the star."""
    for label in folders(hwmon, "freq*_label"):
        if read_text(label) == name:
            hertz = read_int(label.with_name(label.name.replace("_label", "_input")))
            if (mhz := believed.mhz(hertz, 1e6)) is not None:
                return mhz
    return next((mhz for mhz, current in _levels(device, name) if current), None)


def _levels(device: Path, name: str) -> list[tuple[float, bool]]:
    found = []
    for line in (read_text(device / f"pp_dpm_{name}") or "").splitlines():
        match = _LEVEL.search(line)
        if match and 0 < float(match[1]) <= believed.MOST_MHZ:
            found.append((float(match[1]), match[2] is not None))
    return found


def _fan(hwmon: Path) -> float | None:
    pwm, most = read_int(hwmon / "pwm1"), read_int(hwmon / "pwm1_max") or 255
    return 100 * pwm / most if pwm is not None and 0 <= pwm <= most else None


def _first(hwmon: Path, *names: str) -> float | None:
    """The first of these in watts that says something."""
    read = (believed.watts(read_int(hwmon / name), 1e6) for name in names)
    return next((value for value in read if value is not None), None)


def _percent(value: int | None) -> float | None:
    return float(value) if value is not None and 0 <= value <= 100 else None


def _scaled(value: int | None, by: float, most: float, *, least: float = 1e-9) -> float | None:
    return value / by if value is not None and least <= value / by <= most else None
