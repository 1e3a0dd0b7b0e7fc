"""Which disk a file lies on, under a name that stays the same, and the read speed that it showed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from appliance.text import clean_line

_UP, _DOWN = 0.7, 0.2
"""Shares of a higher and of a lower figure in the smoothed one: a busy disk or processor makes a disk look
slow, and nothing makes it look fast.
"""
POSSIBLE = (1e6, 100e9)
"""Bytes per second; no disk is slower or faster, so other figures are misreadings."""
TELLING = 64 << 20
"""Bytes that must have come from the disk before they say something of its speed."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Where files lie."""

    key: str
    """Names it in what is remembered: device and mount point."""
    name: str
    """For people: `/dev/nvme0n1p2`, or the mount point where the device has no name of its own."""


class _Mount(Protocol):
    @property
    def device(self) -> str: ...

    @property
    def mountpoint(self) -> str: ...


def disk_of(path: Path) -> Disk | None:
    """The disk of this file or folder; None when it can't be told. Blocks a little, raises nothing."""
    try:
        return place(os.path.realpath(path), psutil.disk_partitions(all=True))
    except (OSError, RuntimeError, ValueError, psutil.Error):
        return None


def place(path: str, mounts: Iterable[_Mount]) -> Disk | None:
    """The mount that `path` is below: the one with the longest mount point, of those the last mounted."""
    best: _Mount | None = None
    for mount in mounts:
        if _below(path, mount.mountpoint) and (best is None or len(mount.mountpoint) >= len(best.mountpoint)):
            best = mount
    if best is None:
        return None
    device, point = clean_line(best.device, 200), clean_line(best.mountpoint, 200)
    return Disk(f"{device} {point}", device if "/" in device or ":" in device else point)


def _below(path: str, point: str) -> bool:
    folder = point if point.endswith(os.sep) else point + os.sep
    return bool(point) and (path == point or path.startswith(folder))


def smoothed(old: float | None, new: float) -> float | None:
    """The speed to remember after `new` was seen; an impossible figure changes nothing."""
    if not POSSIBLE[0] <= new <= POSSIBLE[1]:
        return old
    if old is None:
        return new
    share = _UP if new > old else _DOWN
    return share * new + (1 - share) * old
