"""Heat, power and memory of this machine for `/metrics`, from the monitor's snapshot when somebody asks.

Labels are a device's id and kind, of at most 16 devices. What is unknown is absent, never 0; old readings
are absent, too, while `appliance_sensor_age_seconds` says how old they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from appliance.monitor import CPU, CpuView, GpuView, MonitorSnapshot

MOST_DEVICES = 16
STATES = ("cool", "warm", "throttled", "critical", "unknown")
_DEVICE = ("device", "kind")
_Labels = tuple[str, ...]
_GAUGES: tuple[tuple[str, str, str, float], ...] = (
    ("temperature", "temperature_celsius", "Temperature", 1),
    ("memory_temperature", "memory_temperature_celsius", "Temperature of the memory", 1),
    ("slowdown_at", "slowdown_celsius", "Where the hardware slows its clocks", 1),
    ("power", "power_watts", "Power drawn", 1),
    ("power_limit", "power_limit_watts", "Power limit in force", 1),
    ("clock", "clock_hertz", "Clock", 1e6),
    ("utilisation", "utilisation_ratio", "Share of the time that it works, 0 to 1", 0.01),
    ("used", "memory_used_bytes", "Memory in use", 1),
    ("free", "memory_free_bytes", "Memory free", 1),
    ("used_by_engine", "memory_engines_bytes", "Memory in use by our engines", 1),
    ("fan", "fan_ratio", "Intended speed of the fan, 1 is full", 0.01),
)
"""Field of a view, name, help, and what makes a base unit of it."""
_MACHINE: tuple[tuple[str, str, float], ...] = (
    ("cpu_percent", "appliance_cpu_utilisation_ratio", 0.01),
    ("ram_available", "appliance_ram_available_bytes", 1),
    ("ram_total", "appliance_ram_total_bytes", 1),
    ("swap_used", "appliance_swap_used_bytes", 1),
    ("age_s", "appliance_sensor_age_seconds", 1),
)


class MachineCollector(Collector):
    """Made anew at each scrape; `snapshot` answers at once, None while there is no monitor."""

    def __init__(self, snapshot: Callable[[], MonitorSnapshot | None]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is differs from scrape to scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        seen = self._snapshot()
        if seen is None:
            return
        devices = _devices(seen)
        fresh = seen.active and not seen.stale and seen.age_s is not None
        if fresh:
            for field, name, text, factor in _GAUGES:
                values = [(labels, _field(view, field)) for labels, view in devices if _is_read(view)]
                yield from _gauge(f"appliance_device_{name}", text, values, factor)
            yield from _throttled(devices)
        totals = [(labels, _field(view, "total")) for labels, view in devices]
        yield from _gauge("appliance_device_memory_bytes", "Memory", totals)
        yield from _states(devices, seen)
        yield from _of_machine(seen)


def _devices(seen: MonitorSnapshot) -> list[tuple[_Labels, GpuView | CpuView]]:
    found: list[tuple[_Labels, GpuView | CpuView]] = []
    if seen.cpu is not None:
        found.append(((CPU, "cpu"), seen.cpu))
    found += [((gpu.id, "gpu"), gpu) for gpu in seen.gpus]
    return found[:MOST_DEVICES]


def _is_read(view: GpuView | CpuView) -> bool:
    return isinstance(view, CpuView) or (view.watched and not view.asleep)


def _field(view: GpuView | CpuView, name: str) -> float | None:
    if isinstance(view, CpuView) and name == "slowdown_at":
        return view.high_at
    found: float | None = getattr(view, name, None)
    return found


def _gauge(
    name: str, text: str, values: Iterable[tuple[_Labels, float | None]], factor: float = 1
) -> Iterator[Metric]:
    made = GaugeMetricFamily(name, text, labels=_DEVICE)
    for labels, value in values:
        if value is not None:
            made.add_metric(labels, value * factor)
    if made.samples:
        yield made


def _throttled(devices: Iterable[tuple[_Labels, GpuView | CpuView]]) -> Iterator[Metric]:
    made = CounterMetricFamily(
        "appliance_device_throttled_seconds", "Time with lowered clocks, by cause", labels=(*_DEVICE, "cause")
    )
    for labels, view in devices:
        if not _is_read(view):
            continue
        if isinstance(view, CpuView):
            counters = {} if view.throttled_ns is None else {"hw_thermal": view.throttled_ns}
        else:
            counters = dict(view.counters or {})
        for cause, nanoseconds in counters.items():
            made.add_metric((*labels, cause), nanoseconds / 1e9)
    if made.samples:
        yield made


def _states(devices: list[tuple[_Labels, GpuView | CpuView]], seen: MonitorSnapshot) -> Iterator[Metric]:
    """What the governor holds for true: it does not grow old with a reading."""
    states = GaugeMetricFamily(
        "appliance_device_thermal_state", "1 for the state that it is in", labels=(*_DEVICE, "state")
    )
    for labels, view in devices:
        for state in STATES:
            states.add_metric((*labels, state), float(view.state == state))
    if states.samples:
        yield states
    yield from _gauge(
        "appliance_device_speed_factor",
        "Speed over usual speed",
        [(labels, None if v.state == "unknown" else v.factor) for labels, v in devices],
    )
    worst = GaugeMetricFamily("appliance_thermal_state", "1 for the worst state of all", labels=("state",))
    for state in STATES:
        worst.add_metric((state,), float(seen.thermal == state))
    yield worst
    yield GaugeMetricFamily("appliance_speed_factor", "Speed over usual speed, the lowest", seen.factor)


def _of_machine(seen: MonitorSnapshot) -> Iterator[Metric]:
    for field, name, factor in _MACHINE:
        value: float | None = getattr(seen, field)
        if value is not None:
            yield GaugeMetricFamily(name, _TEXTS[field], value * factor)
    if seen.battery is not None and seen.battery.percent is not None:
        yield GaugeMetricFamily("appliance_battery_ratio", "Charge, 0 to 1", seen.battery.percent / 100)
    if seen.power != "unknown":
        yield GaugeMetricFamily("appliance_on_mains", "1 on mains, 0 on battery", float(seen.power == "ac"))
    yield CounterMetricFamily(
        "appliance_sensor_restarts", "How often the sensor process ended or hung", seen.restarts
    )


_TEXTS = {
    "cpu_percent": "Share of all cores in use, 0 to 1",
    "ram_available": "RAM that programs could still get",
    "ram_total": "RAM",
    "swap_used": "Swap in use",
    "age_s": "Age of the sensors' last readings",
}
