"""One look at one NVIDIA device through NVML. Each function raises NvmlDown when the device is lost.

What changes each second is in `look`; thresholds, the highest clocks and processes are read less often.
Implausible values are None: a sensor that says 0 degrees or 200 says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.hardware.nvml import fields, query, refusal
from appliance.hardware.sensors import believed
from appliance.hardware.sensors.values import Counter, GpuSample
from appliance.hardware.troubles import ABSENT, NOT_SUPPORTED
from appliance.hardware.types import Gpu

Processes = tuple[tuple[int, int | None], ...]
SharedMemory = Callable[[], tuple[int | None, int | None]]
"""Total and free bytes of the RAM that a device shares."""

MEMORY_V2 = 0x02000028
"""sizeof(nvmlMemory_v2_t) | 2 << 24 (nvml.h)."""
_SHUTDOWN, _SLOWDOWN, _GPU_MAX = 0, 1, 3
"""NVML_TEMPERATURE_THRESHOLD_*. At GPU_MAX many laptops run all day, and it may change while they run."""
_SHUTDOWN_MARGIN, _SLOWDOWN_MARGIN, _MAX_MARGIN = 193, 194, 196
"""The same on Ada and later: margins at which it begins, small numbers of both signs."""
_MEMORY_TEMPERATURE = 82
_COUNTERS: Mapping[int, Counter] = {
    269: "sw_thermal", 270: "hw_thermal", 271: "power_brake",
    74: "power_cap", 75: "policy_thermal", 76: "sync_boost",
}  # fmt: skip
_EACH_SECOND = (_MEMORY_TEMPERATURE, *_COUNTERS)
_GRAPHICS, _MEMORY = 0, 2
_LEAST_SHUTDOWN = 80.0
"""Degrees; real GPUs do not even slow down below that."""
_MOST_FAN = 255
_MOST_PROCESSES = 64


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes; `total = free + used + reserved` where the driver tells version 2."""

    total: int | None = None
    free: int | None = None
    used: int | None = None
    reserved: int | None = None
    shared: bool = False
    """The device refuses to tell any, for good, as those do that share the system's RAM (GB10)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds in degrees, or as margins; read once a minute, since they change at run time."""

    slowdown: float | None = None
    shutdown: float | None = None
    maximum: float | None = None
    margins: Mapping[int, float] | None = None


@dataclass(frozen=True, slots=True)
class Clocks:
    """The highest clocks, MHz."""

    graphics: float | None = None
    memory: float | None = None


def blank(gpu: Gpu) -> GpuSample:
    """The row of a device that can't be read now."""
    return GpuSample(id=gpu.id, index=gpu.index, name=gpu.name, backend=gpu.backend, total=gpu.total)


def look(
    gpu: Gpu, handle: Any, limits: Limits, clocks: Clocks, shared: SharedMemory | None = None
) -> GpuSample:
    """Everything that changes from second to second."""
    temperature = believed.degrees(query("nvmlDeviceGetTemperatureV", handle, 0))
    if temperature is None:  # older drivers have only the call that newer headers deprecate
        temperature = believed.degrees(query("nvmlDeviceGetTemperature", handle, 0))
    margin = _between(query("nvmlDeviceGetMarginTemperature", handle), -150, 150)
    entries = fields(handle, _EACH_SECOND)
    utilisation = query("nvmlDeviceGetUtilizationRates", handle)
    sample = replace(
        blank(gpu),
        temperature=temperature,
        margin=margin,
        memory_temperature=believed.degrees(entries.get(_MEMORY_TEMPERATURE)),
        reasons=_reasons(handle),
        counters={name: entries[number] for number, name in _COUNTERS.items() if number in entries} or None,
        clock=believed.mhz(query("nvmlDeviceGetClockInfo", handle, _GRAPHICS)),
        memory_clock=believed.mhz(query("nvmlDeviceGetClockInfo", handle, _MEMORY)),
        clock_max=clocks.graphics,
        memory_clock_max=clocks.memory,
        power=believed.watts(query("nvmlDeviceGetPowerUsage", handle), 1000),
        power_limit=believed.watts(query("nvmlDeviceGetEnforcedPowerLimit", handle), 1000),
        utilisation=None if utilisation is None else _between(utilisation.gpu, 0, 100),
        memory_utilisation=None if utilisation is None else _between(utilisation.memory, 0, 100),
        fan=_between(query("nvmlDeviceGetFanSpeed", handle), 0, _MOST_FAN),
        fan_rpm=_between(query("nvmlDeviceGetFanSpeedRPM", handle), 0, believed.MOST_RPM),
    )
    return _with_memory(_with_limits(sample, limits), memory(handle), shared)


def limits(handle: Any) -> Limits:
    """The thresholds as they are now."""
    wanted = (_SHUTDOWN_MARGIN, _SLOWDOWN_MARGIN, _MAX_MARGIN)
    margins = {number: _signed(value) for number, value in fields(handle, wanted).items()}
    shutdown = _believed(_threshold(handle, _SHUTDOWN), _LEAST_SHUTDOWN)
    return Limits(
        slowdown=_believed(_threshold(handle, _SLOWDOWN), believed.LEAST_LIMIT, shutdown),
        shutdown=shutdown,
        maximum=_threshold(handle, _GPU_MAX),
        margins={number: float(value) for number, value in margins.items() if abs(value) < 150},
    )


def _believed(limit: float | None, least: float, most: float | None = None) -> float | None:
    """A limit as it is told; one that no GPU has, or that is over its shutdown, would stop local work, or
    never would.
    """
    if limit is None or limit < least or (most is not None and limit > most):
        return None
    return limit


def clocks(handle: Any) -> Clocks:
    """The highest clocks; they do not change."""
    return Clocks(
        believed.mhz(query("nvmlDeviceGetMaxClockInfo", handle, _GRAPHICS)),
        believed.mhz(query("nvmlDeviceGetMaxClockInfo", handle, _MEMORY)),
    )


def memory(handle: Any) -> Memory:
    """Memory version 2, else 1; unknown on unified-memory devices, which refuse both or say a total of 0."""
    info = query("nvmlDeviceGetMemoryInfo", handle, MEMORY_V2) or query("nvmlDeviceGetMemoryInfo", handle)
    if info is None:
        newer, older = (refusal("nvmlDeviceGetMemoryInfo", handle, *more) for more in ((MEMORY_V2,), ()))
        return Memory(shared=newer in ABSENT and older == NOT_SUPPORTED)
    if not info.total:
        return Memory(shared=True)
    if info.free > info.total:
        return Memory(int(info.total))
    reserved = getattr(info, "reserved", None)
    return Memory(int(info.total), int(info.free), int(info.used), reserved)


def processes(handle: Any, total: int | None) -> Processes | None:
    """Who computes on it: milliseconds under the driver's lock. WSL tells absurd sizes: unknown."""
    found = query("nvmlDeviceGetComputeRunningProcesses", handle)
    if found is None:  # drivers before R510
        found = query("nvmlDeviceGetComputeRunningProcesses_v2", handle)
    if found is None:
        return None
    return tuple((int(one.pid), _held(one.usedGpuMemory, total)) for one in found[:_MOST_PROCESSES])


def _with_limits(sample: GpuSample, known: Limits) -> GpuSample:
    """Where slowdown and shutdown begin: from the thresholds, else from the margins and the margin of now."""
    temperature, margin, margins = sample.temperature, sample.margin, known.margins or {}

    def at(threshold: float | None, number: int) -> float | None:
        if threshold is not None or temperature is None or margin is None or number not in margins:
            return threshold
        return temperature + margin - margins[number]

    headroom = None
    if known.slowdown is not None:
        headroom = None if temperature is None else known.slowdown - temperature
    elif margin is not None and _SLOWDOWN_MARGIN in margins:
        headroom = margin - margins[_SLOWDOWN_MARGIN]
    return replace(
        sample,
        headroom=headroom,
        slowdown_at=at(known.slowdown, _SLOWDOWN_MARGIN),
        shutdown_at=at(known.shutdown, _SHUTDOWN_MARGIN),
        max_at=at(known.maximum, _MAX_MARGIN),
    )


def _with_memory(sample: GpuSample, of_driver: Memory, shared: SharedMemory | None) -> GpuSample:
    answers = (sample.temperature, sample.utilisation, sample.power) != (None, None, None)
    if of_driver.shared and answers and shared is not None:
        total, free = shared()
        return replace(sample, total=total, free=free, memory_source="ram" if total is not None else None)
    return replace(
        sample,
        total=of_driver.total,
        free=of_driver.free,
        used=of_driver.used,
        reserved=of_driver.reserved,
        memory_source="driver" if of_driver.total is not None else None,
    )


def _reasons(handle: Any) -> int | None:
    mask = query("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if mask is None:
        mask = query("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return None if mask is None else int(mask)


def _threshold(handle: Any, kind: int) -> float | None:
    return believed.degrees(query("nvmlDeviceGetTemperatureThreshold", handle, kind))


def _held(used: int | None, total: int | None) -> int | None:
    return None if used is None or (total is not None and used > total) else int(used)


def _signed(value: int) -> int:
    """Negative margins come as unsigned numbers of 32 bits."""
    return value - (1 << 32) if 1 << 31 <= value < 1 << 32 else value


def _between(value: float | None, low: float, high: float) -> float | None:
    return float(value) if value is not None and low <= value <= high else None
