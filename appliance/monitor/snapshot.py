"""What the monitor publishes: frozen values for the router, the control plane and the UI."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from appliance.hardware.sensors import GpuSample, Sample, reason_names
from appliance.hardware.types import Battery
from appliance.monitor.governor.states import ThermalState
from appliance.units import duration


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU. Bytes, degrees Celsius, watts, percent; None is unknown, never zero."""

    id: str
    name: str
    backend: str
    total: int | None
    free: int | None
    used_by_engine: int | None
    temperature: float | None
    slowdown_at: float | None
    reasons: tuple[str, ...] | None
    """Why its clocks are lowered; empty when they are not, None when that can't be read."""
    power: float | None
    power_limit: float | None
    utilisation: float | None
    state: ThermalState
    age_s: float | None
    """Seconds since these values were read."""
    asleep: bool = False
    """The kernel has powered it down, and the monitor leaves it so."""
    engines: tuple[tuple[int, int], ...] = ()
    """(pid, bytes) of each engine, as far as the driver tells."""


@dataclass(frozen=True, slots=True)
class MonitorSnapshot:
    """The machine as it is known now."""

    gpus: tuple[GpuView, ...] = ()
    thermal: ThermalState = "unknown"
    """The worst of all GPUs that tell anything about heat."""
    factor: float = 1.0
    """Multiplier for local speed estimates, in (0, 1]: measured over usual speed while heat slows the
    machine, else 1.
    """
    ram_available: int | None = None
    ram_total: int | None = None
    cpu_percent: float | None = None
    battery: Battery | None = None
    message: str | None = None
    """One sentence on what is wrong with the sensors and what to do, else None."""
    stale: bool = False
    """The sensors should answer and do not; GPU values are the last ones, with their age."""
    age_s: float | None = None
    active: bool = False
    """The sensors are being read."""
    restarts: int = 0
    """How often the sensor child ended or hung."""
    sensor_pid: int | None = None


def gpu_view(sample: GpuSample, state: ThermalState, age_s: float | None, pids: Set[int]) -> GpuView:
    """The view of one sample."""
    return GpuView(
        id=sample.id,
        name=sample.name,
        backend=sample.backend,
        total=sample.total,
        free=sample.free,
        used_by_engine=_used_by(sample, pids),
        temperature=sample.temperature,
        slowdown_at=sample.slowdown_at,
        reasons=reason_names(sample.reasons),
        power=sample.power,
        power_limit=sample.power_limit,
        utilisation=sample.utilisation,
        state=state,
        age_s=age_s,
        asleep=sample.asleep,
        engines=tuple(
            (pid, used) for pid, used in sample.processes or () if pid in pids and used is not None
        ),
    )


def message(sample: Sample | None, *, stale: bool, age_s: float | None) -> str | None:
    """The one banner: what the sensors report as wrong, else that they are silent."""
    if stale and age_s is None:
        return "The sensors have given no answer yet; the sensor process is restarted until they do."
    if stale:
        return f"The sensors have been silent for {duration(age_s)}; the last values are shown."
    return sample.trouble if sample is not None else None


def _used_by(sample: GpuSample, pids: Set[int]) -> int | None:
    """Bytes of the engines' processes. A container may see other pids than the driver: no match is
    unknown.
    """
    if sample.processes is None:
        return None
    ours = [used for pid, used in sample.processes if pid in pids]
    known = [used for used in ours if used is not None]
    return sum(known) if ours and len(known) == len(ours) else None


def heat_factor(snapshot: MonitorSnapshot) -> float:
    """Measured over usual speed while heat slows this machine, else 1."""
    return snapshot.factor if snapshot.thermal == "throttled" else 1.0
