"""One look at one Intel GPU through sysfs: sensors of `xe` or `i915`, clocks and why they are lowered.

What there is depends on the kernel and the card: temperatures since 6.15 with `xe` and 6.13 with `i915`, fans
since 6.16, energy on discrete cards; an integrated GPU has no sensors of its own, but clocks. How busy it is
and what memory is free no file tells: the engine's device list has the memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from appliance.hardware.amd import hwmon_of
from appliance.hardware.sensors import believed
from appliance.hardware.sensors.values import GpuSample
from appliance.hardware.sysfs import folders, read_int, read_text

_SHORTEST_S = 0.1
"""Less time between two looks makes a difference of energy that says little."""
_POWER_CAP, _SW_THERMAL, _HW_THERMAL = 0x4, 0x20, 0x40
"""Of `REASONS`."""
_LIMITS = {
    "pl1": _POWER_CAP, "pl2": _POWER_CAP, "pl4": _POWER_CAP, "vr_tdc": _POWER_CAP,
    "thermal": _SW_THERMAL, "ratl": _SW_THERMAL, "vr_thermalert": _SW_THERMAL, "prochot": _HW_THERMAL,
}  # fmt: skip
"""The kernel's words: limits of power and current; of temperature, now and on average (`ratl`)."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Microjoules at a time: the power is their difference."""

    file: str
    microjoules: int
    at: float


@dataclass(frozen=True, slots=True)
class Graphics:
    """Where a driver keeps the figures of the unit that computes."""

    clock: Path
    highest: Path
    limits: Path
    status: str
    """Before the word `status` in a file's name."""
    reason: str
    """Before the word of a limit."""


def look(
    blank: GpuSample, device: Path, before: Energy | None, now: float
) -> tuple[GpuSample, Energy | None]:
    """The figures of now, and the energy that the next look compares with."""
    hwmon, unit = hwmon_of(device), _graphics(device)
    energy = _energy(hwmon, now)
    fans = [rpm for file in folders(hwmon, "fan*_input") if (rpm := read_int(file)) is not None]
    sample = replace(
        blank,
        temperature=_temperature(hwmon, "pkg", "temp1" if read_text(hwmon / "name") == "i915" else "temp2"),
        memory_temperature=_temperature(hwmon, "vram", "temp3"),
        power=_power(before, energy),
        power_limit=believed.watts(read_int(hwmon / "power1_max"), 1e6)
        or believed.watts(read_int(hwmon / "power2_max"), 1e6),
        fan_rpm=max((float(rpm) for rpm in fans if 0 <= rpm <= believed.MOST_RPM), default=None),
        clock=believed.mhz(read_int(unit.clock)),
        clock_max=believed.mhz(read_int(unit.highest)),
        reasons=_reasons(unit),
    )
    return sample, energy


def _temperature(hwmon: Path, label: str, usual: str) -> float | None:
    """By its label; where there are none, by its usual number. At which temperature it slows down no file
    says for sure.
    """
    labels = {read_text(file): file.name.removesuffix("_label") for file in folders(hwmon, "temp*_label")}
    stem = labels.get(label) if labels else usual
    return None if stem is None else believed.milli_degrees(read_int(hwmon / f"{stem}_input"))


def _graphics(device: Path) -> Graphics:
    """The first graphics unit of `xe`, else of `i915`; it is the one that computes."""
    xe = device / "tile0" / "gt0" / "freq0"
    card = next(iter(folders(device / "drm", "card*")), device / "drm" / "none")
    if xe.is_dir():
        return Graphics(xe / "act_freq", xe / "rp0_freq", xe / "throttle", "", "reason_")
    return Graphics(
        card / "gt_act_freq_mhz",
        card / "gt_RP0_freq_mhz",
        card / "gt" / "gt0",
        "throttle_reason_",
        "throttle_reason_",
    )


def _reasons(unit: Graphics) -> int | None:
    """Why the clocks are lowered; most of the time one file says that they are not."""
    status = read_int(unit.limits / f"{unit.status}status")
    if status is None:
        return None
    mask = 0
    for word, reason in _LIMITS.items() if status else ():
        if read_int(unit.limits / f"{unit.reason}{word}"):
            mask |= reason
    return mask


def _energy(hwmon: Path, now: float) -> Energy | None:
    """Of the whole card, else of the package."""
    for name in ("energy1_input", "energy2_input"):
        value = read_int(hwmon / name)
        if value is not None and value >= 0:
            return Energy(name, value, now)
    return None


def _power(before: Energy | None, now: Energy | None) -> float | None:
    """Watts between two looks; a counter that fell has begun anew and tells nothing."""
    if before is None or now is None or before.file != now.file or now.at - before.at < _SHORTEST_S:
        return None
    spent = now.microjoules - before.microjoules
    watts = spent / 1e6 / (now.at - before.at)
    return watts if 0 <= watts <= believed.MOST_WATTS and spent >= 0 else None
