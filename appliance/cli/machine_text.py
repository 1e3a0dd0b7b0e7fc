"""The machine in words: GPUs, CPU, memory, power and heat. Unknown is n/a, never 0."""

from __future__ import annotations

from collections.abc import Iterator

from appliance.cli.packing import packed, wrapped
from appliance.client import StatusSnapshot
from appliance.client.documents import CpuRow, GpuRow
from appliance.units import about, size

_OLD_S = 15.0
"""Readings come every five seconds at least; these are old."""
_SOON_S = 300.0
WORDS = {
    "GpuIdle": "",
    "ApplicationsClocksSetting": "clocks set by a program",
    "SwPowerCap": "at its power limit",
    "HwSlowdown": "slowed by its hardware",
    "SyncBoost": "in step with another GPU",
    "SwThermalSlowdown": "slowed by heat",
    "HwThermalSlowdown": "slowed by heat",
    "HwPowerBrakeSlowdown": "slowed by the power supply",
    "DisplayClockSetting": "clocks set for the display",
    "BoardLimit": "at its board's limit",
    "Reliability": "at its voltage limit",
}
"""Why clocks are lowered, by the driver's names. Idle is not worth a word."""
_TROUBLES = {
    "gpu_lost": "lost: it does not answer any more",
    "reset_required": "needs a reset",
    "insufficient_power": "gets too little power",
    "no_permission": "can't be read: no permission",
    "version_mismatch": "can't be read: the driver's parts don't match",
}


def machine_lines(snapshot: StatusSnapshot) -> Iterator[str]:
    """All but the GPUs."""
    host, cpu = snapshot.host, snapshot.cpu
    if cpu is not None or host.cpu_percent is not None:
        yield from packed(
            "CPU", [_percent(host.cpu_percent, "busy"), *(_cpu(cpu) if cpu is not None else [])]
        )
    if host.ram_total is not None:
        swap = f"swap {size(host.swap_used)} of {size(host.swap_total)} used" if host.swap_used else ""
        yield from packed("Memory", [f"{size(host.ram_available)} free of {size(host.ram_total)}", swap])
    power = _power(snapshot)
    if power:
        yield from packed("Power", [power])
    speed = "" if snapshot.factor in (None, 1.0) else f"speed x{snapshot.factor:.2f}"
    yield from packed("Heat", [snapshot.thermal or "n/a", speed])
    if snapshot.eases and snapshot.thermal != "critical":  # then everything waits, and a note says so
        yield from wrapped(f"Batch work waits first: {snapshot.eases}")
    if snapshot.thermal_message and not any(note.code == "sensor_stale" for note in snapshot.notes):
        yield from wrapped(snapshot.thermal_message, "Sensors")


def gpu_lines(gpu: GpuRow) -> Iterator[str]:
    """One GPU."""
    name, memory = gpu.name or gpu.id, f"{size(gpu.free)} free of {size(gpu.total)}"
    source = {"ram": "shared with the machine", "engine": "as the engine says"}.get(
        gpu.memory_source or "", ""
    )
    if gpu.disagrees is not None:
        source = f"the engine says {size(gpu.disagrees.engine)}"
    if gpu.asleep:
        yield from packed("GPU", [name, "asleep, and left so"])
        return
    if gpu.trouble:
        yield from packed("GPU", [name, _TROUBLES.get(gpu.trouble, f"can't be read ({gpu.trouble})")])
        return
    if gpu.watched is False:
        yield from packed("GPU", [name, "no engine uses it, so it is not looked at"])
        return
    yield from packed(
        "GPU",
        [
            name, memory, source, _temperature(gpu.temperature, gpu.slowdown_at), _hot_memory(gpu),
            _percent(gpu.utilisation, "busy"), _watts(gpu), _clock(gpu.clock), _fan(gpu),
            _state(gpu.state, gpu.factor), *reasons_in_words(gpu.reasons), _soon(gpu), _old(gpu.age_s),
        ],
    )  # fmt: skip


def reasons_in_words(reasons: tuple[str, ...] | None) -> list[str]:
    """Each once; nothing where none is known."""
    words = (WORDS.get(reason, f"clocks lowered ({reason})") for reason in reasons or ())
    return [word for word in dict.fromkeys(words) if word]


def _cpu(cpu: CpuRow) -> list[str]:
    heat = _temperature(cpu.temperature, cpu.high_at)
    return [heat, _clock(cpu.clock), _state(cpu.state, cpu.factor), _old(cpu.age_s)]


def _temperature(value: float | None, limit: float | None) -> str:
    slows = "" if limit is None else f" (slows at {limit:.0f})"
    return "temperature n/a" if value is None else f"{value:.0f} °C{slows}"


def _hot_memory(gpu: GpuRow) -> str:
    return "" if gpu.memory_temperature is None else f"memory {gpu.memory_temperature:.0f} °C"


def _percent(value: float | None, word: str) -> str:
    return f"n/a {word}" if value is None else f"{value:.0f} % {word}"


def _watts(gpu: GpuRow) -> str:
    limit = "" if gpu.power_limit is None else f" of {gpu.power_limit:.0f}"
    return "power n/a" if gpu.power is None else f"{gpu.power:.0f}{limit} W"


def _clock(value: float | None) -> str:
    return "clock n/a" if value is None else f"{value:.0f} MHz"


def _fan(gpu: GpuRow) -> str:
    if gpu.fan is None:
        return "fan n/a" if gpu.fan_rpm is None else f"fan {gpu.fan_rpm:.0f}/min"
    return f"fan {gpu.fan:.0f} %"


def _state(state: str | None, factor: float | None) -> str:
    speed = "" if factor in (None, 1.0) else f" x{factor:.2f}"
    return f"{state or 'unknown'}{speed}"


def _soon(gpu: GpuRow) -> str:
    left = gpu.slowdown_in_s
    return "" if left is None or not 0 < left <= _SOON_S else f"slows in {about(left)} at this rate"


def _old(age_s: float | None) -> str:
    return "" if age_s is None or age_s < _OLD_S else f"read {about(age_s)} ago"


def _power(snapshot: StatusSnapshot) -> str:
    battery = snapshot.host.battery
    if battery is None or (battery.percent is None and snapshot.power == "ac"):
        return {"ac": "on mains", "battery": "on battery"}.get(snapshot.power or "", "")
    charge = "n/a" if battery.percent is None else f"{battery.percent:.0f} %"
    source = {"ac": "on mains, battery at", "battery": "on battery at"}
    return f"{source.get(snapshot.power or '', 'source n/a, battery at')} {charge}"
