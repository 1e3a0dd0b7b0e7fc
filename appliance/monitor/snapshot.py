"""What the monitor publishes: frozen values for the router, the control plane and the UI."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import asdict, dataclass, field, fields

from appliance.hardware.sensors import CpuSample, GpuSample, Sample, reason_names
from appliance.hardware.types import Battery
from appliance.monitor.governor import CPU, DeviceHeat, PowerSource, ThermalState
from appliance.monitor.governor.states import worst
from appliance.units import duration


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU. Bytes, degrees Celsius, watts, percent, MHz; None is unknown, never zero."""

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
    used: int | None = None
    reserved: int | None = None
    memory_source: str | None = None
    memory_temperature: float | None = None
    shutdown_at: float | None = None
    max_at: float | None = None
    headroom: float | None = None
    margin: float | None = None
    counters: Mapping[str, int] | None = None
    """Nanoseconds that each cause has held its clocks down."""
    clock: float | None = None
    clock_max: float | None = None
    memory_clock: float | None = None
    memory_clock_max: float | None = None
    memory_utilisation: float | None = None
    fan: float | None = None
    fan_rpm: float | None = None
    trouble: str | None = None
    """Why this one can't be read: a state such as `gpu_lost`; None when nothing is wrong."""
    signs: tuple[str, ...] = ()
    """Of heat, now: `near bits counters`."""
    factor: float = 1.0
    slowdown_in_s: float | None = None
    """Until its threshold, at the rate of now."""
    ends_in_s: float | None = None
    """Of a critical one: until it may be cool again, at the earliest."""
    watched: bool = True
    """False: no engine uses it, so it is not looked at and may sleep."""


@dataclass(frozen=True, slots=True)
class CpuView:
    """The CPU package; it shares the cooling of a laptop's GPU."""

    name: str | None = None
    temperature: float | None = None
    high_at: float | None = None
    critical_at: float | None = None
    throttled_ns: int | None = None
    clock: float | None = None
    clock_max: float | None = None
    state: ThermalState = "unknown"
    signs: tuple[str, ...] = ()
    factor: float = 1.0
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class MonitorSnapshot:
    """The machine as it is known now."""

    gpus: tuple[GpuView, ...] = ()
    thermal: ThermalState = "unknown"
    """The worst of all devices that tell anything about heat."""
    factor: float = 1.0
    """Multiplier for local speed estimates, in (0, 1]: measured over usual speed while heat slows the
    machine, else 1; the lowest of all devices.
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
    swap_total: int | None = None
    swap_used: int | None = None
    cpu: CpuView | None = None
    power: PowerSource = "unknown"
    """What feeds the machine, debounced."""
    eases: str | None = None
    """Why batch work should wait, as one sentence; None when it need not."""
    devices: Mapping[str, DeviceHeat] = field(default_factory=dict)
    """By GPU id, and `cpu`."""
    skipped: tuple[str, ...] = ()
    """Calls to the driver that hung or crashed and are left out."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """What heat means for one model: the places that it runs on, and what no place may ignore."""

    thermal: ThermalState
    factor: float
    """Measured over usual speed while `throttled`, else 1."""
    why: str = ""
    """Of `critical`: which device, and what is known of it, as a sentence without its end."""
    ends_in_s: float | None = None
    """Of `critical`: until it may end, at the earliest."""


def pressure_on(snapshot: MonitorSnapshot, places: Collection[str]) -> Pressure:
    """Heat for a model that runs on `places` (GPU ids, `cpu`); without any, that of the whole machine.

    A device in danger counts for all, since the devices of a machine share their cooling. A slow one counts
    for what runs on it.
    """
    if snapshot.thermal == "critical":
        return _danger(snapshot)
    mine = [snapshot.devices[place] for place in places if place in snapshot.devices]
    if not mine:
        return Pressure(snapshot.thermal, snapshot.factor if snapshot.thermal == "throttled" else 1.0)
    state = worst(device.state for device in mine)
    return Pressure(state, min(d.factor for d in mine) if state == "throttled" else 1.0)


def _danger(snapshot: MonitorSnapshot) -> Pressure:
    """Which device it is that nothing new is generated for, the one that takes longest first."""
    hot = {name: one for name, one in snapshot.devices.items() if one.state == "critical"}
    if not hot:
        return Pressure("critical", 1.0)
    name, heat = max(hot.items(), key=lambda item: item[1].ends_in_s or 0.0)
    return Pressure("critical", 1.0, _danger_words(snapshot, name, heat), heat.ends_in_s)


def _danger_words(snapshot: MonitorSnapshot, name: str, heat: DeviceHeat) -> str:
    gpu = next((gpu for gpu in snapshot.gpus if gpu.id == name), None)
    title = "The CPU" if name == CPU else gpu.name if gpu is not None else name
    cpu = snapshot.cpu if name == CPU else None
    now = cpu.temperature if cpu is not None else gpu.temperature if gpu is not None else None
    limit = cpu.critical_at if cpu is not None else gpu.slowdown_at if gpu is not None else None
    if not heat.readable or now is None:
        return f"{title} was critically hot, and its sensors can't be read now"
    at = f"{now:.0f} °C" + ("" if limit is None else f" (limit {limit:.0f})")
    if limit is not None and now < limit:
        return f"{title} was critically hot and has to stay cool for a while; it is at {at}"
    return f"{title} is critically hot, at {at}"


def gpu_view(
    sample: GpuSample, heat: DeviceHeat, age_s: float | None, pids: Set[int], *, watched: bool = True
) -> GpuView:
    """The view of one sample."""
    shared = {part.name for part in fields(GpuView)} & {part.name for part in fields(GpuSample)}
    values = {name: getattr(sample, name) for name in shared if name != "reasons"}
    return GpuView(
        **values,
        reasons=reason_names(sample.reasons),
        used_by_engine=_used_by(sample, pids),
        state=heat.state,
        signs=heat.signs,
        factor=heat.factor,
        slowdown_in_s=heat.slowdown_in_s,
        ends_in_s=heat.ends_in_s,
        age_s=age_s,
        watched=watched,
        engines=tuple(
            (pid, used) for pid, used in sample.processes or () if pid in pids and used is not None
        ),
    )


def cpu_view(sample: CpuSample, heat: DeviceHeat, age_s: float | None) -> CpuView:
    """The view of the CPU package."""
    return CpuView(**asdict(sample), state=heat.state, signs=heat.signs, factor=heat.factor, age_s=age_s)


def message(sample: Sample | None, *, stale: bool, age_s: float | None) -> str | None:
    """The one banner: what the sensors report as wrong, else that they are silent."""
    if stale and age_s is None:
        return "The sensors have given no answer yet; the sensor process is restarted until they do."
    if stale:
        return f"The sensors have been silent for {duration(age_s)}; the last values are shown."
    if sample is None:
        return None
    if sample.trouble is None and sample.skipped:
        left = ", ".join(sample.skipped)
        return f"The driver hangs or crashes in {left}: that is left out. Update the GPU's driver."
    return sample.trouble


def _used_by(sample: GpuSample, pids: Set[int]) -> int | None:
    """Bytes of the engines' processes. A container may see other pids than the driver: no match is
    unknown.
    """
    if sample.processes is None:
        return None
    ours = [used for pid, used in sample.processes if pid in pids]
    known = [used for used in ours if used is not None]
    return sum(known) if ours and len(known) == len(ours) else None


def heat_factor(snapshot: MonitorSnapshot, places: Collection[str] = ()) -> float:
    """Measured over usual speed while heat slows what runs on `places`, else 1."""
    return pressure_on(snapshot, places).factor
