"""Machines with a name, as states of the stub. What each is known for: the vendor's text and field reports.

laptop.set(**profiles.GAMING_LAPTOP, temp=90)
"""

from __future__ import annotations

from collections.abc import Mapping

Profile = Mapping[str, int | str]

_MARGINS: Profile = {"field__193": -7 & 0xFFFFFFFF, "field__194": -2 & 0xFFFFFFFF, "field__196": 0}
_NO_THRESHOLDS: Profile = {
    "t_shutdown": "absent",
    "t_slowdown": "absent",
    "err__nvmlDeviceGetTemperatureThreshold": 3,
}

GAMING_LAPTOP: Profile = {
    "name": "NVIDIA GeForce RTX 4070 Laptop GPU",
    "temp": 71, "t_shutdown": 105, "t_slowdown": 102, "t_gpumax": 87, "util": 96, "memutil": 61,
    "power_mw": 98_400, "limit_mw": 115_000, "reasons": 0x4, "counters": 1, "gclk": 1980, "gclk_max": 3105,
    "mclk": 8001, "mclk_max": 8001, "total_mib": 8188, "used_mib": 5200, "reserved_mib": 341,
}  # fmt: skip
"""No fan, no memory temperature; always at its power cap."""

THINKPAD_THAT_ALWAYS_THROTTLES: Profile = {
    "name": "NVIDIA GeForce MX330",
    "temp": 55, "t_shutdown": 99, "t_slowdown": 94, "t_gpumax": 57, "reasons": 0x60, "counters": 1,
    "power_mw": "absent", "limit_mw": "absent", "total_mib": 2048, "used_mib": 400, "reserved_mib": 60,
    "err__nvmlDeviceGetMarginTemperature": 13,
}  # fmt: skip
"""Thermal bits at 55 degrees for ever, at usual speed; no power readings."""

DESKTOP_ADA: Profile = {
    "name": "NVIDIA GeForce RTX 4090",
    "temp": 64, "margin": 20, "fan": 42, "fan_rpm": 1350, "util": 88, "power_mw": 310_000,
    "limit_mw": 450_000, "counters": 1, "total_mib": 24_564, "used_mib": 9000, "reserved_mib": 500,
    **_NO_THRESHOLDS, **_MARGINS,
}  # fmt: skip
"""Margins only: no threshold is told in degrees."""

GB10: Profile = {
    "name": "NVIDIA GB10",
    "temp": 58, "margin": 27, "total_mib": "absent", "limit_mw": "absent", "power_mw": 31_000, "counters": 1,
    **_NO_THRESHOLDS, **_MARGINS,
}  # fmt: skip
"""Unified memory: both memory calls are refused."""

OLD_DRIVER: Profile = {
    "name": "NVIDIA GeForce GTX 1650",
    "driver": "470.256.02",
    "fan": 35, "total_mib": 4096, "used_mib": 900, "reserved_mib": 0,
    "err__nvmlDeviceGetComputeRunningProcesses_v3": 13,
}  # fmt: skip
"""Together with `OLD_DRIVER_LACKS`, which a library is built without."""
OLD_DRIVER_LACKS = (
    "nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetFanSpeedRPM",
)  # fmt: skip

WSL: Profile = {
    "name": "NVIDIA GeForce RTX 3080",
    "util": "absent", "err__nvmlDeviceGetMemoryInfo_v2": 999, "proc_mib": 17_592_186_044_415,
    "total_mib": 10_240, "used_mib": 2000, "reserved_mib": 0,
}  # fmt: skip
"""No utilisation, an unknown error for memory version 2, absurd sizes of processes."""

VGPU: Profile = {
    "name": "NVIDIA A40-8Q",
    "temp": "absent", "t_shutdown": "absent", "t_slowdown": "absent", "t_gpumax": "absent",
    "margin": "absent", "power_mw": "absent", "limit_mw": "absent", "total_mib": 8192,
    "used_mib": 700, "reserved_mib": 400,
}  # fmt: skip
"""A virtual GPU: no temperature, no power, no fan."""

TWO_CARDS: Profile = {
    "count": 2,
    "name": "NVIDIA RTX A2000", "name__1": "NVIDIA GeForce RTX 3060",
    "temp": 48, "temp__1": 77, "fan": 30, "fan__1": 68, "total_mib": 6138, "total_mib__1": 12_288,
    "used_mib": 500, "used_mib__1": 8000,
}  # fmt: skip
"""Two different ones."""

PROFILES: Mapping[str, Profile] = {
    "gaming_laptop": GAMING_LAPTOP,
    "thinkpad_that_always_throttles": THINKPAD_THAT_ALWAYS_THROTTLES,
    "desktop_ada": DESKTOP_ADA,
    "gb10": GB10,
    "old_driver": OLD_DRIVER,
    "wsl": WSL,
    "vgpu": VGPU,
    "two_cards": TWO_CARDS,
}
