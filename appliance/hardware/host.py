"""RAM and battery: psutil, cut down to the limits of this container."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass

import psutil

from appliance.hardware import cgroup
from appliance.hardware.sysfs import Roots, read_text
from appliance.hardware.types import Battery
from appliance.text import clean_line
from appliance.units import size


@dataclass(frozen=True, slots=True)
class Ram:
    """Bytes of main memory that this process may use."""

    total: int | None
    available: int | None


def ram(limits: cgroup.Limits) -> Ram:
    """Physical RAM, or the container's limit where that is lower."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError, ValueError):
        return Ram(limits.memory, limits.available)
    return Ram(_lowest(memory.total, limits.memory), _lowest(memory.available, limits.available))


def battery() -> Battery | None:
    """The battery, or None without one or where it can't be read."""
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
        self._primed = False

    def percent(self) -> float | None:
        """Percent since the last call; None for the first one, which has nothing to compare with."""
        primed, self._primed = self._primed, True
        try:
            value = psutil.cpu_percent(interval=None)
        except (OSError, RuntimeError, ValueError):
            return None
        return float(value) if primed else None


def cpu_name(roots: Roots) -> str | None:
    """The processor as its maker calls it."""
    for line in (read_text(roots.proc / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model") and value.strip():
            return clean_line(value, 120)
    return clean_line(platform.processor(), 120) or None


def notes(limits: cgroup.Limits) -> tuple[str, ...]:
    """What the container takes away."""
    if limits.memory is None or not sys.platform.startswith("linux"):
        return ()
    return (f"This container or slice may use {size(limits.memory)} of RAM.",)


def _lowest(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
