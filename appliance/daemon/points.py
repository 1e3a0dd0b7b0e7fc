"""A snapshot of the monitor as rows of the timeline. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from appliance.hardware.sensors import REASONS, GpuSample
from appliance.journal.timeline import CPU, GPU, MACHINE, Point
from appliance.journal.timeline.table import MOST_DEVICES
from appliance.monitor import CpuView, GpuView, MonitorSnapshot
from appliance.monitor.governor.readings import slowed_ns

_BITS = {name: bit for bit, name in REASONS.items()}
_ALIKE = (
    "temperature", "memory_temperature", "headroom", "margin", "power", "power_limit", "clock", "utilisation",
    "fan", "total", "free", "used_by_engine",
)  # fmt: skip
"""Fields of a GPU that a point has, too."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the engines do at one moment."""

    running: int | None = None
    waiting: int | None = None
    tokens_per_second: float | None = None
    """Of those that work; None while none does."""


def points_of(at: float, seen: MonitorSnapshot, load: Load, *, fresh: bool) -> list[Point]:
    """The machine, and while the sensors run, CPU and GPUs.

    Of one that never tells anything there is no row. One that can't be read now has a row without figures, so
    that a replay knows that somebody looked.
    """
    found = [_machine(at, seen, load)]
    if seen.active and seen.stale:
        found += [_blind(at, gpu) for gpu in seen.gpus if gpu.watched and _tells(gpu)]
    if not fresh:
        return found[:MOST_DEVICES]
    if seen.cpu is not None and (seen.cpu.temperature is not None or seen.cpu.throttled_ns is not None):
        found.append(_cpu(at, seen.cpu))
    found += [_gpu(at, gpu) for gpu in seen.gpus if gpu.watched and (_tells(gpu) or gpu.trouble)]
    return found[:MOST_DEVICES]


def mask_of(names: tuple[str, ...] | None) -> int | None:
    """The bits of reasons by name, as `reason_names` writes them."""
    if names is None:
        return None
    return sum(_BITS[name] if name in _BITS else int(name, 16) for name in names)


def _machine(at: float, seen: MonitorSnapshot, load: Load) -> Point:
    battery = seen.battery
    return Point(
        at,
        MACHINE,
        state=seen.thermal,
        factor=None if seen.thermal == "unknown" else seen.factor,
        cpu_percent=seen.cpu_percent,
        ram_available=seen.ram_available,
        swap_used=seen.swap_used,
        battery_percent=None if battery is None else battery.percent,
        plugged=battery.plugged if battery is not None else True if seen.power == "ac" else None,
        running=load.running,
        waiting=load.waiting,
        tokens_per_second=load.tokens_per_second,
    )


def _cpu(at: float, cpu: CpuView) -> Point:
    known = cpu.temperature is not None and cpu.high_at is not None
    return Point(
        at,
        CPU,
        name=cpu.name,
        state=cpu.state,
        temperature=cpu.temperature,
        headroom=cast("float", cpu.high_at) - cast("float", cpu.temperature) if known else None,
        critical_at=cpu.critical_at,
        slowed_ns=cpu.throttled_ns,
        clock=cpu.clock,
        factor=_factor(cpu),
    )


def _gpu(at: float, gpu: GpuView) -> Point:
    alike: dict[str, Any] = {name: getattr(gpu, name) for name in _ALIKE}
    counted = GpuSample(gpu.id, 0, gpu.name, "cuda", counters=cast("Any", gpu.counters))
    return Point(
        at,
        f"{GPU}{gpu.id}",
        name=gpu.name,
        state=gpu.state,
        reasons=mask_of(gpu.reasons),
        slowed_ns=slowed_ns(counted),
        factor=_factor(gpu),
        **alike,
    )


def _factor(device: CpuView | GpuView) -> float | None:
    """Of one whose heat is not known it says nothing."""
    return None if device.state == "unknown" else device.factor


def _blind(at: float, gpu: GpuView) -> Point:
    return Point(at, f"{GPU}{gpu.id}", name=gpu.name, state=gpu.state, factor=_factor(gpu))


def _tells(gpu: GpuView) -> bool:
    figures = (*(name for name in _ALIKE if name not in ("total", "used_by_engine")), "reasons", "counters")
    return not gpu.asleep and any(getattr(gpu, name) is not None for name in figures)
