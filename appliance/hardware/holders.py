"""Which programs hold a GPU's memory now: by NVML, and by the kernel's per-file figures of AMD and Intel.

Only detection asks: NVML's process lists take milliseconds and share a lock with the running engine, and the
kernel's files stand below every process. Sources: nvml.h (API 13); the kernel's "DRM client usage stats".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from appliance.hardware.nvml import query
from appliance.hardware.sysfs import Roots, read_text
from appliance.hardware.types import Program
from appliance.text import clean_line

MOST = 16
"""Programs kept for each GPU: more than are ever shown, so that the own engine is among them."""
_NVIDIA_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
_MOST_FILES = 50_000
"""Open files looked at, of all processes together. A busy desktop has 20 000, which take 0.1 s."""
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}


@dataclass(slots=True)
class Clients:
    """What the processes hold of one GPU: bytes by pid."""

    local: dict[int, int] = field(default_factory=dict)
    """Memory of the card itself, or an APU's carve-out."""
    shared: dict[int, int] = field(default_factory=dict)
    """RAM that the GPU uses."""


def programs(held: Mapping[int, int | None]) -> tuple[Program, ...]:
    """Bytes by pid as programs with names, the largest first, unknown sizes last; at most `MOST`."""
    some = [(pid, n_bytes) for pid, n_bytes in held.items() if n_bytes != 0]
    some.sort(key=lambda row: (row[1] is None, -(row[1] or 0), row[0]))
    return tuple(Program(pid, _name(pid), n_bytes) for pid, n_bytes in some[:MOST])


def of_nvidia(handle: object, total: int | None) -> tuple[Program, ...]:
    """What NVML tells. Raises NvmlDown. Windows tells no sizes, and WSL absurd ones: those are unknown."""
    held: dict[int, int | None] = {}
    for name in _NVIDIA_LISTS:
        found = query(f"{name}_v3", handle)
        if found is None:  # drivers before R510
            found = query(f"{name}_v2", handle)
        for process in found or ():
            used = process.usedGpuMemory
            n_bytes = None if used is None or (total is not None and used > total) else int(used)
            pid = int(process.pid)  # one that computes and draws stands in both lists, with the same size
            held[pid] = max(n_bytes or 0, held.get(pid) or 0) or n_bytes
    return programs(held)


def by_pci(roots: Roots) -> dict[str, Clients]:
    """AMD's and Intel's GPUs by PCI address, as the kernel tells of the processes that this user may read."""
    found: dict[str, Clients] = {}
    seen: set[tuple[int, str, str]] = set()
    for pid, file in _graphics_files(roots.proc):
        facts = _facts(file)
        address, client = facts.get("drm-pdev", "").lower(), facts.get("drm-client-id", file.name)
        if not address or (pid, address, client) in seen:
            continue  # a file that was opened once and duplicated tells the same twice
        seen.add((pid, address, client))
        of_gpu = found.setdefault(address, Clients())
        for key, value in _resident(facts).items():
            by_pid = of_gpu.local if key.startswith(("vram", "local")) else of_gpu.shared
            by_pid[pid] = by_pid.get(pid, 0) + value
    return found


def _resident(facts: Mapping[str, str]) -> dict[str, int]:
    """Bytes by memory region. `drm-memory-` is amdgpu's older word for `drm-resident-`."""
    sizes: dict[str, int] = {}
    for prefix in ("drm-memory-", "drm-resident-"):
        for key, value in facts.items():
            region = key.removeprefix(prefix)
            number, _, unit = value.partition(" ")
            if region != key and region != "cpu" and number.isdecimal() and unit.strip() in _UNITS:
                sizes[region] = int(number) * _UNITS[unit.strip()]
    return sizes


def _facts(file: Path) -> dict[str, str]:
    pairs = (line.partition(":") for line in (read_text(file) or "").splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs if key.startswith("drm-")}


def _graphics_files(proc: Path) -> Iterator[tuple[int, Path]]:
    """The `fdinfo` of every open `/dev/dri` file that may be read, with its process."""
    left = _MOST_FILES
    for pid in filter(str.isdecimal, _listed(str(proc))):
        files = _listed(f"{proc}/{pid}/fd")
        left -= len(files)
        if left < 0:
            return
        for file in files:
            try:
                target = os.readlink(f"{proc}/{pid}/fd/{file}")
            except OSError:  # closed meanwhile
                continue
            if target.startswith("/dev/dri/"):
                yield int(pid), proc / pid / "fdinfo" / file


def _listed(folder: str) -> list[str]:
    """The names there; none when it ended meanwhile, or is another user's."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _name(pid: int) -> str:
    """What people know the program as; its pid where that can't be read."""
    try:
        return clean_line(psutil.Process(pid).name(), 60) or f"process {pid}"
    except (psutil.Error, OSError, ValueError):
        return f"process {pid}"
