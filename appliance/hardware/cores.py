"""CPU cores that this process may use, and which of them are the fast ones.

Matrix products run in lock step: all threads wait for the slowest. So a slow core among fast ones makes a
model slower, and the second thread of a core adds next to nothing. What counts is physical performance cores.

| machine | which cores are the fast ones |
| --- | --- |
| Linux, Intel hybrid | `/sys/devices/cpu_core/cpus`; `cpu_atom` has the others |
| Linux, big.LITTLE | `cpu_capacity` of at least two thirds of the largest; a little core has half or less |
| Linux, without either | `cpuinfo_max_freq` of at least 80 % of the largest |
| macOS | `hw.perflevel0.physicalcpu` |
| elsewhere | not told: None, and all physical cores are taken |

AMD's compact cores are whole ones at a lower clock, and count.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from appliance.hardware import cgroup
from appliance.hardware.apple import sysctl as mac_sysctl
from appliance.hardware.sysfs import Roots, read_int, read_text

_CAPACITY, _FREQUENCY = 2 / 3, 0.8
_MOST_CPUS = 8_192
"""More than any kernel has: a longer list is no list of CPUs."""


@dataclass(frozen=True, slots=True)
class Cores:
    """CPU cores that this process may use."""

    physical: int | None
    logical: int | None
    performance: int | None = None
    """Physical cores of the fast kind. None: the system does not tell which those are."""


def cores(
    limits: cgroup.Limits,
    roots: Roots = Roots(),  # noqa: B008  (frozen)
    *,
    system: str = sys.platform,
    sysctl: Callable[[str], str | None] = mac_sysctl,
    allowed: frozenset[int] | None = None,
) -> Cores:
    """Cores, cut down to this process's affinity (`allowed`; None asks) and to the container's quota."""
    if allowed is None and hasattr(os, "sched_getaffinity"):
        allowed = frozenset(os.sched_getaffinity(0))
    count = len(allowed) if allowed is not None else None
    logical = _lowest(psutil.cpu_count(logical=True), count, limits.cpus)
    told = _physical(roots, allowed) if system.startswith("linux") and allowed else None
    physical = _lowest(told if told is not None else psutil.cpu_count(logical=False), logical)
    fast: int | None = None
    if system.startswith("linux") and allowed:
        fast = _fast_on_linux(roots, allowed)
    elif system == "darwin":
        fast = _positive(sysctl("hw.perflevel0.physicalcpu"))
    return Cores(physical, logical, _lowest(fast, physical) if fast else None)


def _fast_on_linux(roots: Roots, allowed: frozenset[int]) -> int | None:
    """Physical cores among the allowed CPUs of the fast kind; all of them where none is fast."""
    fast = allowed & _fast_cpus(roots, allowed)
    return _physical(roots, fast or allowed)


def _fast_cpus(roots: Roots, allowed: frozenset[int]) -> frozenset[int]:
    hybrid = cpu_list(read_text(roots.sys / "devices" / "cpu_core" / "cpus"))
    if hybrid:
        return hybrid
    found = _near_the_largest(roots, "cpu_capacity", _CAPACITY)
    if found:
        return found
    if "AuthenticAMD" in (read_text(roots.proc / "cpuinfo") or ""):
        return allowed
    return _near_the_largest(roots, "cpufreq/cpuinfo_max_freq", _FREQUENCY) or allowed


def _near_the_largest(roots: Roots, file: str, share: float) -> frozenset[int]:
    """CPUs whose figure is at least this share of the machine's largest; none when one has no figure."""
    figures = {number: read_int(folder / file) for number, folder in _folders(roots).items()}
    known = {number: figure for number, figure in figures.items() if figure is not None and figure > 0}
    if not known or len(known) < len(figures):
        return frozenset()
    least = math.ceil(max(known.values()) * share)
    return frozenset(number for number, figure in known.items() if figure >= least)


def _physical(roots: Roots, cpus: frozenset[int]) -> int | None:
    """How many cores these CPUs are; None when the kernel does not tell it for each."""
    folders, found = _folders(roots), set[str]()
    for number in cpus:
        folder = folders.get(number)
        siblings = None
        if folder is not None:
            siblings = read_text(folder / "topology" / "thread_siblings_list")
        if not siblings:
            return None
        found.add(siblings)
    return len(found) or None


def _folders(roots: Roots) -> dict[int, Path]:
    """The folder of each CPU that is online."""
    parent = roots.sys / "devices" / "system" / "cpu"
    try:
        found = [entry for entry in parent.iterdir() if entry.name.startswith("cpu")]
    except OSError:
        return {}
    numbered = {int(entry.name[3:]): entry for entry in found if entry.name[3:].isdecimal()}
    return {number: entry for number, entry in numbered.items() if (entry / "topology").is_dir()}


def cpu_list(text: str | None) -> frozenset[int]:
    """`0-3,8` as numbers; empty for anything that is no such list."""
    found = set[int]()
    for part in (text or "").split(","):
        low, dash, high = part.strip().partition("-")
        high = high if dash else low
        if not (low.isdecimal() and high.isdecimal()) or int(high) >= _MOST_CPUS:
            return frozenset()
        found.update(range(int(low), int(high) + 1))
    return frozenset(found)


def _positive(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and int(text) > 0 else None


def _lowest(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
