"""RAM, swap and the power source, cut down to the limits of this container.

psutil tells only the first battery and takes a mouse's for one, so on Linux the power supplies are read here.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass

import psutil

from appliance.hardware import cgroup, supplies
from appliance.hardware.sysfs import Roots, read_text
from appliance.hardware.types import Battery
from appliance.text import clean_line
from appliance.units import size

_LINUX = sys.platform.startswith("linux")


@dataclass(frozen=True, slots=True)
class Ram:
    """Bytes of main memory that this process may use."""

    total: int | None
    available: int | None


@dataclass(frozen=True, slots=True)
class Swap:
    """Bytes of swap that this process may use; a total of 0 is a machine without any."""

    total: int | None
    used: int | None


def ram(limits: cgroup.Limits) -> Ram:
    """Physical RAM, or the container's limit where that is lower."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError, ValueError):
        return Ram(limits.memory, limits.available)
    return Ram(_lowest(memory.total, limits.memory), _lowest(memory.available, limits.available))


def swap(limits: cgroup.Limits, roots: Roots = Roots()) -> Swap:  # noqa: B008  (frozen)
    """The machine's swap, or the container's share of it where that is lower."""
    total, used = _swap_of_machine(roots)
    if limits.swap is not None and (total is None or limits.swap <= total):
        return Swap(limits.swap, limits.swap_used)
    return Swap(total, used)


def battery(
    roots: Roots = Roots(),  # noqa: B008  (frozen)
    *,
    linux: bool = _LINUX,
) -> Battery | None:
    """The battery, or None without one or where it can't be read. Without a battery an adapter is told all
    the same: plugged, with an unknown charge.
    """
    if linux:
        return supplies.read(roots)
    read = getattr(psutil, "sensors_battery", None)
    try:
        state = read() if read is not None else None
    except (OSError, RuntimeError, ValueError, AttributeError, TypeError):
        return None  # psutil stumbles over odd power supplies
    if state is None:
        return None
    percent = state.percent if state.percent is not None and 0 <= state.percent <= 100 else None
    return Battery(None if percent is None else float(percent), state.power_plugged)


class CpuLoad:
    """The load of all cores between two calls in this process."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None
        self._last: float | None = None

    def percent(self) -> float | None:
        """Percent since the last call, from whatever thread; None for the first one, which has nothing to
        compare with. (psutil's own `cpu_percent` remembers by thread, and says 0 in each new one.)
        """
        before, now = self._before, _cpu_seconds()
        if before is None or now is None:
            self._before = now
            return None
        total, idle = now[0] - before[0], now[1] - before[1]
        if total > 0:  # the kernel counts in hundredths of a second; within one the last figure holds
            self._before, self._last = now, 100.0 * min(1.0, max(0.0, 1 - idle / total))
        return self._last


def _cpu_seconds() -> tuple[float, float] | None:
    """All, and idle, since boot; what guests took is part of what their host's user time counts."""
    try:
        times = psutil.cpu_times()
    except (OSError, RuntimeError, ValueError):
        return None
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total, times.idle + getattr(times, "iowait", 0.0)


def cpu_name(roots: Roots) -> str | None:
    """The processor as its maker calls it."""
    for line in (read_text(roots.proc / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model") and value.strip():
            return clean_line(value, 120)
    return clean_line(platform.processor(), 120) or None


def notes(limits: cgroup.Limits) -> tuple[str, ...]:
    """What the container takes away."""
    if limits.memory is None or not _LINUX:
        return ()
    return (f"This container or slice may use {size(limits.memory)} of RAM.",)


def _swap_of_machine(roots: Roots) -> tuple[int | None, int | None]:
    """From the kernel's one file, since psutil reads a second one for what nobody asks; elsewhere psutil."""
    figures: dict[str, int] = {}
    for line in (read_text(roots.proc / "meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        number = value.strip().removesuffix(" kB")
        if key in ("SwapTotal", "SwapFree") and number.isdecimal():
            figures[key] = int(number) * 1024
    total, free = figures.get("SwapTotal"), figures.get("SwapFree")
    if total is not None:
        return total, None if free is None or free > total else total - free
    if _LINUX:
        return None, None
    try:
        memory = psutil.swap_memory()
    except (OSError, RuntimeError, ValueError):
        return None, None
    return memory.total, memory.used


def _lowest(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
