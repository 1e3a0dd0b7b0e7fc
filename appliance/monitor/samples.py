"""One sample as it travels from the sensor child to the daemon: one JSON object per line.

Every field may be missing. What a line says is checked here, so that a broken child can give no wrong type
to the governor; a line that is no sample at all is dropped.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from appliance.hardware.types import Backend, Battery
from appliance.text import clean_line

REASONS = {
    0x1: "GpuIdle", 0x2: "ApplicationsClocksSetting", 0x4: "SwPowerCap", 0x8: "HwSlowdown", 0x10: "SyncBoost",
    0x20: "SwThermalSlowdown", 0x40: "HwThermalSlowdown", 0x80: "HwPowerBrakeSlowdown",
    0x100: "DisplayClockSetting", 0x200: "BoardLimit", 0x400: "Reliability",
}  # fmt: skip
"""Names of the clock event reason bits (nvml.h)."""

_BACKENDS: tuple[Backend, ...] = ("cuda", "rocm", "metal", "vulkan")


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU. Bytes, degrees Celsius, watts, percent."""

    id: str
    index: int
    name: str
    backend: Backend
    total: int | None = None
    free: int | None = None
    used: int | None = None
    temperature: float | None = None
    slowdown_at: float | None = None
    headroom: float | None = None
    """Degrees to the slowdown threshold."""
    margin: float | None = None
    """The driver's own distance to its nearest limit."""
    reasons: int | None = None
    power: float | None = None
    power_limit: float | None = None
    utilisation: float | None = None
    processes: tuple[tuple[int, int | None], ...] | None = None
    """(pid, bytes or None); refreshed slowly, None while not known."""
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The machine at one moment."""

    gpus: tuple[GpuSample, ...] = ()
    cpu_percent: float | None = None
    ram_total: int | None = None
    ram_available: int | None = None
    battery: Battery | None = None
    trouble: str | None = None
    """Why GPU values are missing, and what to do; None when nothing is wrong."""


def identity(gpu: GpuSample) -> GpuSample:
    """Which GPU it is, without any reading."""
    return GpuSample(gpu.id, gpu.index, gpu.name, gpu.backend, gpu.total, asleep=gpu.asleep)


def reason_names(mask: int | None) -> tuple[str, ...] | None:
    """The bits by name, unknown bits as a number; None for an unknown mask."""
    if mask is None:
        return None
    return tuple(
        REASONS.get(1 << bit, f"{1 << bit:#x}") for bit in range(mask.bit_length()) if mask >> bit & 1
    )


def to_line(sample: Sample) -> str:
    """The line for `parse`, without its newline."""
    return json.dumps(asdict(sample), separators=(",", ":"))


def parse(line: bytes) -> Sample | None:
    """The sample of a line, or None for a line that is none."""
    try:
        document = json.loads(line)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("gpus"), list):
        return None
    battery = document.get("battery")
    trouble = document.get("trouble")
    return Sample(
        gpus=tuple(_gpu(gpu) for gpu in document["gpus"] if isinstance(gpu, dict)),
        cpu_percent=_number(document.get("cpu_percent")),
        ram_total=_whole(document.get("ram_total")),
        ram_available=_whole(document.get("ram_available")),
        battery=_battery(battery) if isinstance(battery, dict) else None,
        trouble=clean_line(trouble, 400) if isinstance(trouble, str) else None,
    )


def _gpu(raw: dict[str, Any]) -> GpuSample:
    backend = raw.get("backend")
    return GpuSample(
        id=clean_line(str(raw.get("id")), 120),
        index=_whole(raw.get("index")) or 0,
        name=clean_line(str(raw.get("name")), 120),
        backend=backend if backend in _BACKENDS else "vulkan",
        total=_whole(raw.get("total")),
        free=_whole(raw.get("free")),
        used=_whole(raw.get("used")),
        temperature=_number(raw.get("temperature")),
        slowdown_at=_number(raw.get("slowdown_at")),
        headroom=_number(raw.get("headroom")),
        margin=_number(raw.get("margin")),
        reasons=_whole(raw.get("reasons")),
        power=_number(raw.get("power")),
        power_limit=_number(raw.get("power_limit")),
        utilisation=_number(raw.get("utilisation")),
        processes=_processes(raw.get("processes")),
        asleep=raw.get("asleep") is True,
    )


def _battery(raw: dict[str, Any]) -> Battery:
    plugged = raw.get("plugged")
    return Battery(_number(raw.get("percent")), plugged if isinstance(plugged, bool) else None)


def _processes(raw: object) -> tuple[tuple[int, int | None], ...] | None:
    if not isinstance(raw, list):
        return None
    found: list[tuple[int, int | None]] = []
    for entry in raw:
        pid = _whole(entry[0]) if isinstance(entry, list) and len(entry) == 2 else None
        if pid is not None:
            found.append((pid, _whole(entry[1])))
    return tuple(found)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
