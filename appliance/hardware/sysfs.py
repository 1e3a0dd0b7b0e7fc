"""Reading the kernel's files below `/sys` and `/proc`, whose roots a test may move to a folder of its own."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
GPU_VENDORS = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
"""Who makes GPUs that an engine can use. The virtual adapters (QEMU, VMware, Hyper-V, ASPEED) are others."""
_DISPLAY_CLASS = 0x03
_PART = 65_536


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the kernel's files are."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    share: Path = Path("/usr/share")


@dataclass(frozen=True, slots=True)
class PciDisplay:
    """A display controller of one of the three vendors, as the PCI bus names it."""

    address: str
    vendor: int
    device: int | None
    suspended: bool
    path: Path


_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)")
_LONGEST, _LARGEST = 40, 1 << 63


def read_text(path: Path) -> str | None:
    """The stripped content of a small file, or None.

    By the system's calls: a sensor reads dozens a second, and Python's files cost three times as much.
    """
    parts: list[bytes] = []
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        while part := os.read(file, _PART):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(file)
    return b"".join(parts).decode("utf-8", errors="replace").strip()


def read_int(path: Path) -> int | None:
    """A whole number, decimal or `0x` hex, of at most 64 bits with its sign, or None."""
    text = read_text(path)
    if text is None or len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return None
    value = int(text, 16 if "x" in text.lower() else 10)
    return value if -_LARGEST <= value < _LARGEST else None


def folders(parent: Path, pattern: str = "*") -> list[Path]:
    """The matching entries, sorted; none when the parent can't be read."""
    try:
        names = os.listdir(parent)
    except OSError:
        return []
    return [parent / name for name in sorted(names) if fnmatchcase(name, pattern)]


def pci_address(raw: str) -> str:
    """`00000000:01:00.0` (NVML) and `0000:01:00.0` (sysfs) as the second, in lower case."""
    domain, _, rest = raw.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def displays(roots: Roots) -> list[PciDisplay]:
    """Every display controller of a GPU vendor, driver or not, by PCI address. Wakes none of them."""
    found: list[PciDisplay] = []
    for path in folders(roots.sys / "bus" / "pci" / "devices"):
        kind, vendor = read_int(path / "class"), read_int(path / "vendor")
        if kind is None or vendor not in GPU_VENDORS or kind >> 16 != _DISPLAY_CLASS:
            continue
        found.append(
            PciDisplay(path.name.lower(), vendor, read_int(path / "device"), is_suspended(path), path)
        )
    return found


def is_suspended(device: Path) -> bool:
    """The kernel has powered the device down, or does so now. Reading this does not wake it."""
    return read_text(device / "power" / "runtime_status") in ("suspended", "suspending")


def nvidia_asleep(roots: Roots) -> bool:
    """There are NVIDIA GPUs and all of them sleep: any NVML call would wake them."""
    states = [display.suspended for display in displays(roots) if display.vendor == NVIDIA]
    return bool(states) and all(states)
