"""The limits of this container or slice, which are lower than what the machine has. Linux, cgroup v1 and v2.

A limit binds wherever it stands on the way from this process's group up to the root, so every level is read.
Inside a container the group's own path may not exist below the mount; then the root of the mount is the
container's group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from appliance.hardware.sysfs import Roots, read_int, read_text

_UNLIMITED = 1 << 60
"""v1 writes "no limit" as a huge number."""
_LAYERED = ("overlay", "fuse.fuse-overlayfs", "aufs")
"""File systems of an image's layers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """None where nothing limits."""

    memory: int | None = None
    available: int | None = None
    """What may still be allocated under the tightest limit; droppable page cache counts as free."""
    cpus: int | None = None
    swap: int | None = None
    """Zero where this container may not swap at all."""
    swap_used: int | None = None


def read(roots: Roots) -> Limits:
    """The limits that hold for this process."""
    levels = _levels(roots, "memory")
    pairs = [pair for pair in map(_memory_pair, levels) if pair is not None]
    swaps = [pair for pair in map(_swap_pair, levels) if pair is not None]
    swap, swap_used = min(swaps, key=lambda pair: pair[0], default=(None, None))
    quotas = [quota for quota in map(_quota, _levels(roots, "cpu")) if quota is not None]
    return Limits(
        memory=min((limit for limit, _ in pairs), default=None),
        available=min((left for _, left in pairs if left is not None), default=None),
        cpus=min(quotas, default=None),
        swap=swap,
        swap_used=swap_used,
    )


def in_container(roots: Roots) -> bool:
    """Whether this process most likely runs in a container: its root is a stack of image layers."""
    for line in (read_text(roots.proc / "self" / "mountinfo") or "").splitlines():
        mount, _, kind = line.partition(" - ")
        fields = mount.split()
        if len(fields) > 4 and fields[4] == "/":
            return kind.split(" ")[0] in _LAYERED
    return False


def _levels(roots: Roots, controller: str) -> list[Path]:
    """The folders from this process's group up to the mount, for v2 and for the controller of v1."""
    mount = roots.sys / "fs" / "cgroup"
    levels: list[Path] = []
    for line in (read_text(roots.proc / "self" / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        base = mount if not names else mount / controller
        group = Path(path.strip("/"))
        levels += [base / step for step in (group, *group.parents)]
    return list(dict.fromkeys(levels))


def _memory_pair(level: Path) -> tuple[int, int | None] | None:
    """Limit and what is left of it."""
    for limit_file, used_file, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = read_int(level / limit_file)
        if limit is None or not 0 < limit < _UNLIMITED:
            continue
        used = read_int(level / used_file)
        if used is None:
            return limit, None
        cache = _stat(level / "memory.stat", cache_key) or 0
        return limit, max(0, min(limit, limit - used + cache))
    return None


def _swap_pair(level: Path) -> tuple[int, int | None] | None:
    """Limit and use of swap. Version 1 limits RAM and swap together, which bounds no swap alone: not used."""
    limit = read_int(level / "memory.swap.max")
    return None if limit is None or limit < 0 else (limit, read_int(level / "memory.swap.current"))


def _stat(file: Path, key: str) -> int | None:
    for line in (read_text(file) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdecimal():
            return int(value)
    return None


def _quota(level: Path) -> int | None:
    """Whole CPUs, rounded up: half a CPU still runs one thread."""
    quota, _, period = (read_text(level / "cpu.max") or "").partition(" ")
    if not quota:
        quota = read_text(level / "cpu.cfs_quota_us") or ""
        period = read_text(level / "cpu.cfs_period_us") or ""
    if not (quota.isdecimal() and period.isdecimal()) or int(period) == 0:
        return None
    return max(1, math.ceil(int(quota) / int(period)))
