"""What the sensors say at one moment. Every field is optional: None is "can't be read", never zero.

Bytes, degrees Celsius, watts, percent, MHz, nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from appliance.hardware.types import Backend, Battery, TroubleState

Counter = Literal["sw_thermal", "hw_thermal", "policy_thermal", "power_brake", "power_cap", "sync_boost"]
"""What has held a device's clocks down; the counters hold the nanoseconds of each since the driver loaded."""
MemorySource = Literal["driver", "ram", "engine"]
"""Who told the memory: the device's driver; the system's RAM, which the device shares; the engine's list."""

REASONS = {
    0x1: "GpuIdle", 0x2: "ApplicationsClocksSetting", 0x4: "SwPowerCap", 0x8: "HwSlowdown", 0x10: "SyncBoost",
    0x20: "SwThermalSlowdown", 0x40: "HwThermalSlowdown", 0x80: "HwPowerBrakeSlowdown",
    0x100: "DisplayClockSetting", 0x200: "BoardLimit", 0x400: "Reliability",
}  # fmt: skip
"""Names of the clock event reason bits (nvml.h). AMD's throttle status is told in the same bits."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU."""

    id: str
    index: int
    name: str
    backend: Backend
    total: int | None = None
    free: int | None = None
    used: int | None = None
    reserved: int | None = None
    """What the driver keeps for itself; part of `total` only."""
    memory_source: MemorySource | None = None
    temperature: float | None = None
    memory_temperature: float | None = None
    slowdown_at: float | None = None
    """Where the hardware slows its clocks to save itself; never the maximum operating temperature, where
    many laptops run all day."""
    shutdown_at: float | None = None
    max_at: float | None = None
    """The maximum operating temperature. It may change while the machine runs."""
    headroom: float | None = None
    """Degrees to `slowdown_at`; zero or less is at or above it."""
    margin: float | None = None
    """The driver's own distance to its nearest limit."""
    reasons: int | None = None
    """Why the clocks are lowered: the bits of `REASONS`."""
    counters: Mapping[Counter, int] | None = None
    clock: float | None = None
    clock_max: float | None = None
    memory_clock: float | None = None
    memory_clock_max: float | None = None
    power: float | None = None
    power_limit: float | None = None
    """The limit that is enforced now."""
    utilisation: float | None = None
    memory_utilisation: float | None = None
    """How busy the memory's controller is; not how full the memory is."""
    fan: float | None = None
    """Percent of its speed; what is intended, and may be over 100."""
    fan_rpm: float | None = None
    processes: tuple[tuple[int, int | None], ...] | None = None
    """(pid, bytes or None); read slowly, None while not known."""
    asleep: bool = False
    """The kernel has powered it down, and it was left so."""
    trouble: TroubleState | None = None
    """Why this one can't be read; None when nothing is wrong."""


@dataclass(frozen=True, slots=True)
class CpuSample:
    """The CPU package. A laptop's GPU and CPU share their cooling."""

    name: str | None = None
    temperature: float | None = None
    """Of the package; else the hottest core."""
    high_at: float | None = None
    """Where the CPU begins to slow down. Many laptops reach it in each burst: it is no alarm."""
    critical_at: float | None = None
    """Where the system would be shut down; None where the sensor tells the same figure as `high_at`."""
    throttled_ns: int | None = None
    """Time that the package was slowed by heat, since boot."""
    clock: float | None = None
    clock_max: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The machine at one moment."""

    gpus: tuple[GpuSample, ...] = ()
    cpu: CpuSample | None = None
    cpu_percent: float | None = None
    ram_total: int | None = None
    ram_available: int | None = None
    swap_total: int | None = None
    swap_used: int | None = None
    battery: Battery | None = None
    trouble: str | None = None
    """Why GPU values are missing, and what to do; None when nothing is wrong."""
    skipped: tuple[str, ...] = ()
    """Calls that hung or crashed before and are left out now, by their names."""


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
