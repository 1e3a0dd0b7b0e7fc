"""What feeds the machine: batteries and adapters of /sys/class/power_supply, taken together.

A mouse's or a headset's battery (`scope` Device) feeds something else and is passed over. A desktop's USB-C
ports are listed too and say `online` 0: without a battery that means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from appliance.hardware.sysfs import Roots, folders, read_int, read_text
from appliance.hardware.types import Battery

_ADAPTERS = ("Mains", "USB", "Wireless")
_ONLINE = {0: False, 1: True, 2: True}
"""2: a charger whose voltage is programmed. Anything else is no answer."""
_LARGEST = 10**10
"""10 kWh or 10 kAh in millionths: no battery of a computer holds more."""


def read(roots: Roots) -> Battery | None:
    """All batteries as one; None where there is neither a battery nor an adapter that feeds."""
    batteries: list[Path] = []
    online: list[bool] = []
    mains = False
    for supply in folders(roots.sys / "class" / "power_supply"):
        if read_text(supply / "scope") == "Device":
            continue
        kind = read_text(supply / "type")
        if kind == "Battery" and read_int(supply / "present") != 0:
            batteries.append(supply)
        elif kind in _ADAPTERS and (feeds := _feeds(supply)) is not None:
            online.append(feeds)
            mains = mains or kind == "Mains"
    if not batteries and any(online):
        return Battery(None, plugged=True)
    if not batteries:
        return Battery(None, plugged=None) if mains else None  # off, and yet the machine runs
    return Battery(_percent(batteries), _plugged(online, batteries))


def _feeds(adapter: Path) -> bool | None:
    online = read_int(adapter / "online")
    return None if online is None else _ONLINE.get(online)


def _plugged(online: Sequence[bool], batteries: Sequence[Path]) -> bool | None:
    """By the adapters; where none is listed, or all deny it, by whether a battery takes up or gives off."""
    if any(online):
        return True
    states = {(read_text(battery / "status") or "").lower() for battery in batteries}
    if "discharging" in states:
        return False
    if "charging" in states:  # some firmware forgets to tell of the adapter
        return True
    if online:
        return False
    return True if states & {"full", "not charging"} else None


def _percent(batteries: Sequence[Path]) -> float | None:
    """Charge of all together, by what most of them tell sensibly: energy, charge, else the mean of shares.

    One that tells nonsense is left out, and is not set off against the others.
    """
    told = [[pair for one in batteries if (pair := _held(one, unit))] for unit in ("energy", "charge")]
    told.append([(share, 100.0) for one in batteries if (share := _capacity(one)) is not None])
    pairs = max(told, key=len)  # the first of equals
    if not pairs:
        return None
    return min(100.0, 100 * sum(now for now, _ in pairs) / sum(full for _, full in pairs))


def _held(battery: Path, unit: str) -> tuple[float, float] | None:
    """What it holds and what it can hold."""
    now, full = read_int(battery / f"{unit}_now"), read_int(battery / f"{unit}_full")
    if now is None or full is None or not 0 < full <= _LARGEST:
        return None
    return (now, full) if _bounded(100 * now / full) is not None else None


def _capacity(battery: Path) -> float | None:
    share = read_int(battery / "capacity")
    return None if share is None else _bounded(share)


def _bounded(percent: float) -> float | None:
    """A new battery may hold a little more than full; more than that, or less than nothing, is nonsense."""
    return min(100.0, percent) if 0 <= percent <= 110 else None
