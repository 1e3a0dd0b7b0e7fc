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
        elif kind in _ADAPTERS and (feeds := read_int(supply / "online")) is not None:
            online.append(feeds > 0)
            mains = mains or kind == "Mains"
    if not batteries and any(online):
        return Battery(None, plugged=True)
    if not batteries:
        return Battery(None, plugged=None) if mains else None  # off, and yet the machine runs
    return Battery(_percent(batteries), _plugged(online, batteries))


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
    """Charge of all together, by their energy or their charge; else the mean of what each says."""
    for unit in ("energy", "charge"):
        pairs = [(read_int(one / f"{unit}_now"), read_int(one / f"{unit}_full")) for one in batteries]
        known = [(now, full) for now, full in pairs if now is not None and full is not None and full > 0]
        if len(known) == len(batteries):
            return _bounded(100 * sum(now for now, _ in known) / sum(full for _, full in known))
    shares = [share for one in batteries if (share := read_int(one / "capacity")) is not None]
    return _bounded(sum(shares) / len(shares)) if shares else None


def _bounded(percent: float) -> float | None:
    """A new battery may hold a little more than full; more than that, or less than nothing, is nonsense."""
    return min(100.0, percent) if 0 <= percent <= 110 else None
