"""One look at the CPU package: temperature with its limits, time throttled by heat, clock.

On Linux only the CPU's own hwmon folder is read. `psutil.sensors_temperatures` reads every chip there is,
which may wake a disk or a Wi-Fi card and takes milliseconds; it is asked only on systems without sysfs.

What the limits of the kernel's drivers mean (its hwmon documentation), and what becomes of them:

| driver | `max` | `crit` |
| --- | --- | --- |
| coretemp | where fans should run at full speed: not used | TjMax, where the CPU slows itself |
| k10temp, zenpower | the driver's constant, 70: not used | HTC, where the CPU slows itself |
| cpu_thermal, soc_thermal (ARM) | as told | where the kernel shuts the system down |
| acpitz, a zone of the board | not used | not used: it is no limit of the CPU |

`Tdie` goes before `Tctl`: k10temp shows both only of the Ryzens whose Tctl has an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from appliance.hardware import host
from appliance.hardware.sensors import believed
from appliance.hardware.sensors.values import CpuSample
from appliance.hardware.sysfs import Roots, folders, read_int, read_text

_RANK = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal", "acpitz")
"""Drivers whose chip is the CPU, the surest first."""
_SLOWS_AT_CRIT = ("coretemp", "k10temp", "zenpower")
_MOST_CLOCKS = 8
"""Clock files read per look: older kernels may take 10 ms for each."""
_CPUS_PER_PACKAGE = 2
"""Each CPU of a package counts the package's throttling, since its interrupt goes to all of them."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """One temperature file with its fixed limits."""

    file: Path
    high_at: float | None = None
    critical_at: float | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """Where the CPU's figures stand on this machine, and those that do not change."""

    name: str | None = None
    groups: tuple[tuple[Sensor, ...], ...] = ()
    """Sensors that say the same kind of thing; the first group that can be read counts, its hottest first."""
    throttled: tuple[Path, ...] = ()
    clocks: tuple[Path, ...] = ()
    clock_max: float | None = None


def find(roots: Roots) -> Files:
    """Look up the files: as slow as a second's look is quick."""
    chips: dict[str, list[Path]] = {}
    for folder in folders(roots.sys / "class" / "hwmon", "hwmon*"):
        name = (read_text(folder / "name") or "").replace("-", "_")
        chips.setdefault(name, []).append(folder)
    groups: list[tuple[Sensor, ...]] = []
    for name in _RANK:
        groups += _groups(name, chips.get(name, []))
    cpus = _cpus(roots)
    clocks, clock_max = _clocks(cpus)
    return Files(host.cpu_name(roots), tuple(groups), _throttled(cpus), clocks, clock_max)


def look(files: Files) -> CpuSample:
    """The figures of now; what can't be read or is implausible is None."""
    temperature, high_at, critical_at = _hottest(files.groups)
    times = [ms for file in files.throttled if (ms := read_int(file)) is not None and ms >= 0]
    clocks = [mhz for file in files.clocks if (mhz := believed.mhz(read_int(file), 1000)) is not None]
    return CpuSample(
        name=files.name,
        temperature=temperature,
        high_at=high_at,
        critical_at=critical_at,
        throttled_ns=max(times) * 1_000_000 if times else None,
        clock=max(clocks, default=None),
        clock_max=files.clock_max,
    )


def look_by_psutil(name: str | None, library: Any = psutil) -> CpuSample:
    """The same on systems without sysfs; most of them tell no temperature."""
    clock = _asked(library, "cpu_freq")
    temperature, high_at, critical_at = _of_psutil(_asked(library, "sensors_temperatures") or {})
    return CpuSample(
        name=name,
        temperature=temperature,
        high_at=high_at,
        critical_at=critical_at,
        clock=believed.mhz(getattr(clock, "current", None)),
        clock_max=believed.mhz(getattr(clock, "max", None)),
    )


def _groups(name: str, chips: Iterable[Path]) -> list[tuple[Sensor, ...]]:
    """The sensors of a driver's chips (one per socket): the package first, then the rest."""
    package: list[Sensor] = []
    rest: list[Sensor] = []
    for chip in chips:
        labels = {file: _label(file) for file in folders(chip, "temp*_input")}
        chosen = _package(name, labels)
        for file in labels:
            (package if file in chosen else rest).append(_sensor(name, file))
    return [tuple(group) for group in (package, rest) if group]


def _package(name: str, labels: Mapping[Path, str]) -> list[Path]:
    if name == "coretemp":
        return [f for f, label in labels.items() if label.startswith(("Package id", "Physical id"))]
    if name in ("k10temp", "zenpower"):
        for wanted in ("Tdie", "Tctl", ""):  # kernels before 4.20 have one sensor without a label
            if found := [file for file, label in labels.items() if label == wanted]:
                return found[:1]
        return []
    return list(labels)


def _sensor(name: str, file: Path) -> Sensor:
    def limit(word: str) -> float | None:
        return believed.limit(
            believed.milli_degrees(read_int(file.with_name(file.name.replace("_input", f"_{word}"))))
        )

    if name == "acpitz":
        return Sensor(file)
    if name in _SLOWS_AT_CRIT:
        return Sensor(file, high_at=limit("crit"))
    return Sensor(file, *_apart(limit("max"), limit("crit")))


def _hottest(groups: Sequence[Sequence[Sensor]]) -> tuple[float | None, float | None, float | None]:
    for group in groups:
        read = [(t, one) for one in group if (t := believed.milli_degrees(read_int(one.file))) is not None]
        if read:
            temperature, sensor = max(read, key=lambda pair: pair[0])
            return temperature, sensor.high_at, sensor.critical_at
    return None, None, None


def _cpus(roots: Roots) -> dict[int, Path]:
    found = folders(roots.sys / "devices" / "system" / "cpu", "cpu[0-9]*")
    numbered = {int(path.name[3:]): path for path in found if path.name[3:].isdecimal()}
    return dict(sorted(numbered.items()))


def _throttled(cpus: Mapping[int, Path]) -> tuple[Path, ...]:
    """The counters of the packages, else of all cores. The largest counts: they run at the same time, so
    that a sum would be longer than the clock on the wall.
    """
    packages: dict[int | None, list[Path]] = {}
    cores: list[Path] = []
    for cpu in cpus.values():
        counters = cpu / "thermal_throttle"
        if (counters / "package_throttle_total_time_ms").exists():
            package = read_int(cpu / "topology" / "physical_package_id")
            packages.setdefault(package, []).append(counters / "package_throttle_total_time_ms")
        elif (counters / "core_throttle_total_time_ms").exists():
            cores.append(counters / "core_throttle_total_time_ms")
    if packages:
        return tuple(file for files in packages.values() for file in files[:_CPUS_PER_PACKAGE])
    return tuple(cores)


def _clocks(cpus: Mapping[int, Path]) -> tuple[tuple[Path, ...], float | None]:
    """A few clock files, of the fastest cores first and spread over them; and the highest clock there is."""
    highest = {
        cpu: believed.mhz(read_int(cpu / "cpufreq" / "cpuinfo_max_freq"), 1000) for cpu in cpus.values()
    }
    files = [cpu / "cpufreq" / "scaling_cur_freq" for cpu in cpus.values()]
    usable = [file for file in files if file.exists()]
    usable.sort(key=lambda file: -(highest[file.parent.parent] or 0.0))
    known = [clock for clock in highest.values() if clock is not None]
    fast = [f for f in usable if (highest[f.parent.parent] or 0.0) >= 0.8 * max(known, default=0.0)]
    step = -(-len(fast) // _MOST_CLOCKS) or 1
    return tuple(fast[::step]), max(known, default=None)


def _asked(library: Any, call: str) -> Any:
    """What psutil says; None where the system has no such call, or psutil stumbles."""
    try:
        return getattr(library, call)()
    except (OSError, RuntimeError, ValueError, AttributeError, TypeError):
        return None


def _of_psutil(chips: Mapping[str, Sequence[Any]]) -> tuple[float | None, float | None, float | None]:
    for name in _RANK:
        read = [one for one in chips.get(name, ()) if believed.degrees(one.current) is not None]
        package = [one for one in read if (one.label or "").startswith(("Package id", "Tdie"))]
        if read:
            hottest = max(package or read, key=lambda one: float(one.current))
            critical = None if name == "acpitz" else believed.limit(believed.degrees(hottest.critical))
            return believed.degrees(hottest.current), critical, None  # FreeBSD's `critical` is TjMax
    return None, None, None


def _apart(high: float | None, critical: float | None) -> tuple[float | None, float | None]:
    """Where both are the same figure only the lower meaning is certain."""
    if critical is not None and high is not None and critical <= high:
        return high, None
    return high, critical


def _label(file: Path) -> str:
    return read_text(file.with_name(file.name.replace("_input", "_label"))) or ""
