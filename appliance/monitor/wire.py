"""One sample as it travels from the sensor child to the daemon: one JSON object per line.

Every field may be missing. What a line says is checked here, so that a broken child can give no wrong type
to the governor; a line that is no sample at all is dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, get_args

from appliance.hardware.sensors import Counter, CpuSample, GpuSample, MemorySource, Sample
from appliance.hardware.types import Backend, Battery, TroubleState
from appliance.text import clean_line

_MOST_GPUS = 64
_MOST_SKIPPED = 32
_LARGEST = 1 << 63
"""A larger number is nonsense, and no column of the journal holds it."""


def to_line(sample: Sample) -> str:
    """The line for `parse`, without its newline."""
    return json.dumps(asdict(sample), separators=(",", ":"))


def parse(line: bytes) -> Sample | None:
    """The sample of a line, or None for a line that is none."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("gpus"), list):
        return None
    gpus = document["gpus"][:_MOST_GPUS]
    return Sample(
        gpus=tuple(GpuSample(**_values(gpu, _GPU)) for gpu in gpus if isinstance(gpu, dict)),
        **_values(document, _SAMPLE),
    )


def parse_hung(line: bytes) -> str | None:
    """The call that hung, in the last line of a child that ended itself for it; None for any other line."""
    if not line.startswith(b'{"hung":'):
        return None
    try:
        what = json.loads(line).get("hung")
    except (ValueError, RecursionError):
        return None
    return clean_line(what, 120) or None if isinstance(what, str) else None


Reader = Callable[[Any], Any]


def _values(raw: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    return {name: read(raw.get(name)) for name, read in readers.items()}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _whole(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < _LARGEST else None


def _text(longest: int) -> Reader:
    return lambda value: clean_line(value, longest) if isinstance(value, str) else None


def _one_of(words: tuple[str, ...]) -> Reader:
    return lambda value: value if value in words else None


def _battery(raw: object) -> Battery | None:
    if not isinstance(raw, dict):
        return None
    plugged = raw.get("plugged")
    return Battery(_number(raw.get("percent")), plugged if isinstance(plugged, bool) else None)


def _cpu(raw: object) -> CpuSample | None:
    return CpuSample(**_values(raw, _CPU)) if isinstance(raw, dict) else None


def _counters(raw: object) -> Mapping[Counter, int] | None:
    if not isinstance(raw, dict):
        return None
    known = {name: _whole(raw.get(name)) for name in get_args(Counter)}
    return {name: value for name, value in known.items() if value is not None} or None


def _processes(raw: object) -> tuple[tuple[int, int | None], ...] | None:
    if not isinstance(raw, list):
        return None
    found: list[tuple[int, int | None]] = []
    for entry in raw:
        pid = _whole(entry[0]) if isinstance(entry, list) and len(entry) == 2 else None
        if pid is not None:
            found.append((pid, _whole(entry[1])))
    return tuple(found)


def _names(raw: object) -> tuple[str, ...]:
    if not isinstance(raw, list):
        return ()
    return tuple(clean_line(name, 120) for name in raw[:_MOST_SKIPPED] if isinstance(name, str))


_GPU: Mapping[str, Reader] = {
    "id": lambda value: clean_line(str(value), 120),
    "name": lambda value: clean_line(str(value), 120),
    "index": lambda value: _whole(value) or 0,
    "backend": lambda value: value if value in get_args(Backend) else "vulkan",
    "memory_source": _one_of(get_args(MemorySource)),
    "counters": _counters,
    "processes": _processes,
    "asleep": lambda value: value is True,
    "trouble": _one_of(get_args(TroubleState)),
    **dict.fromkeys(("total", "free", "used", "reserved", "reasons"), _whole),
    **dict.fromkeys(
        (
            "temperature", "memory_temperature", "slowdown_at", "shutdown_at", "max_at", "headroom", "margin",
            "clock", "clock_max", "memory_clock", "memory_clock_max", "power", "power_limit", "utilisation",
            "memory_utilisation", "fan", "fan_rpm",
        ),
        _number,
    ),
}  # fmt: skip
_CPU: Mapping[str, Reader] = {
    "name": _text(120),
    "throttled_ns": _whole,
    **dict.fromkeys(("temperature", "high_at", "critical_at", "clock", "clock_max"), _number),
}
_SAMPLE: Mapping[str, Reader] = {
    "cpu": _cpu,
    "cpu_percent": _number,
    "battery": _battery,
    "trouble": _text(400),
    "skipped": _names,
    **dict.fromkeys(("ram_total", "ram_available", "swap_total", "swap_used"), _whole),
}
