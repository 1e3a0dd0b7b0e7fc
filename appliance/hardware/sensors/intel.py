"""One look at one Intel GPU through the hwmon folder of `xe` or `i915`.

What there is depends on the kernel and the card: temperatures since 6.15 with `xe`, fans since 6.16, energy
on discrete cards; an integrated GPU has no sensors of its own. How busy it is and what memory is free no
file tells: the engine's device list has the memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from appliance.hardware.amd import hwmon_of
from appliance.hardware.sensors.values import GpuSample
from appliance.hardware.sysfs import folders, read_int, read_text

_SHORTEST_S = 0.1
"""Less time between two looks makes a difference of energy that says little."""
_MOST_WATTS, _MOST_RPM = 3000.0, 30_000.0


@dataclass(frozen=True, slots=True)
class Energy:
    """Microjoules at a time: the power is their difference."""

    file: str
    microjoules: int
    at: float


def look(
    blank: GpuSample, device: Path, before: Energy | None, now: float
) -> tuple[GpuSample, Energy | None]:
    """The figures of now, and the energy that the next look compares with."""
    hwmon = hwmon_of(device)
    energy = _energy(hwmon, now)
    fans = [rpm for file in folders(hwmon, "fan*_input") if (rpm := read_int(file)) is not None]
    sample = replace(
        blank,
        temperature=_temperature(hwmon, "pkg", "temp2"),
        memory_temperature=_temperature(hwmon, "vram", "temp3"),
        power=_power(before, energy),
        power_limit=_watts(read_int(hwmon / "power1_max")) or _watts(read_int(hwmon / "power2_max")),
        fan_rpm=max((float(rpm) for rpm in fans if 0 <= rpm <= _MOST_RPM), default=None),
    )
    return sample, energy


def _temperature(hwmon: Path, label: str, usual: str) -> float | None:
    """By its label, else by its usual number. At which temperature it slows down no file says for sure."""
    labels = {read_text(file): file.name.removesuffix("_label") for file in folders(hwmon, "temp*_label")}
    return _degrees(read_int(hwmon / f"{labels.get(label, usual)}_input"))


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
    return watts if 0 <= watts <= _MOST_WATTS and spent >= 0 else None


def _watts(microwatts: int | None) -> float | None:
    """0 is a limit that is switched off."""
    return microwatts / 1e6 if microwatts is not None and 0 < microwatts <= _MOST_WATTS * 1e6 else None


def _degrees(milli: int | None) -> float | None:
    return milli / 1000 if milli is not None and 0 < milli < 150_000 else None
