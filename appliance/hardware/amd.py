"""AMD and Intel GPUs through sysfs. Files and units: the kernel's amdgpu documentation, and nvtop's reader.

An APU has only a small carve-out as VRAM and uses system RAM through the GTT, so its usable memory is both
together.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from appliance.hardware import holders
from appliance.hardware.sysfs import AMD, INTEL, PciDisplay, Roots, displays, folders, read_int, read_text
from appliance.hardware.types import Gpu, Program
from appliance.text import clean_line


def detect(roots: Roots) -> tuple[Gpu, ...]:
    """AMD and Intel GPUs, by PCI address. Intel's memory is unknown here; the engine's device list has it."""
    cards = displays(roots)
    amd = [_amd_gpu(card, i, roots) for i, card in enumerate(c for c in cards if c.vendor == AMD)]
    intel = [_intel_gpu(card, i) for i, card in enumerate(c for c in cards if c.vendor == INTEL)]
    return (*amd, *intel)


def with_holders(gpus: tuple[Gpu, ...], roots: Roots) -> tuple[Gpu, ...]:
    """The same GPUs with the programs that hold their memory: a look at every process of this user."""
    if all(gpu.asleep for gpu in gpus):
        return gpus
    clients = holders.by_pci(roots)
    return tuple(replace(gpu, holders=_holders(gpu, clients.get(gpu.pci or ""))) for gpu in gpus)


def _holders(gpu: Gpu, clients: holders.Clients | None) -> tuple[Program, ...]:
    if clients is None:
        return ()
    held: dict[int, int | None] = dict(clients.local)
    if gpu.integrated:
        for pid, n_bytes in clients.shared.items():
            held[pid] = (held.get(pid) or 0) + n_bytes
    return holders.programs(held)


def hwmon_of(device: Path) -> Path:
    """The folder of the device's sensors; one that is not there where it has none."""
    return next(iter(folders(device / "hwmon", "hwmon*")), device / "hwmon" / "none")


def is_apu(device: Path) -> bool | None:
    """Only APUs have a northbridge voltage (in1), only discrete GPUs a junction temperature (temp2)."""
    for hwmon in folders(device / "hwmon", "hwmon*"):
        if (hwmon / "in1_input").exists():
            return True
        if (hwmon / "temp2_input").exists():
            return False
    return None


def _amd_gpu(card: PciDisplay, index: int, roots: Roots) -> Gpu:
    total, used, apart = (None, None, None) if card.suspended else memory(card.path)
    unique = read_text(card.path / "unique_id")
    return Gpu(
        id=f"amd-{unique}" if unique else f"pci:{card.address}",
        index=index,
        name=_amd_name(card, roots),
        backend="rocm",
        total=total,
        free=total - used if total is not None and used is not None and used <= total else None,
        used=used,
        driver=_driver(card.path),
        integrated=is_apu(card.path),
        pci=card.address,
        asleep=card.suspended,
        apart=apart,
    )


def _intel_gpu(card: PciDisplay, index: int) -> Gpu:
    return Gpu(
        id=f"pci:{card.address}",
        index=index,
        name=f"Intel GPU (PCI {card.vendor:04x}:{card.device or 0:04x})",
        backend="vulkan",
        driver=_driver(card.path),
        integrated=card.address.startswith("0000:00:"),  # on the root bus: part of the processor
        pci=card.address,
        asleep=card.suspended,
    )


def memory(device: Path) -> tuple[int | None, int | None, int | None]:
    """Total, used, and what is free apart from RAM: VRAM, and for an APU the GTT on top of it."""
    vram, vram_used = _of_kind(device, "vram")
    if not is_apu(device):
        return vram, vram_used, None
    gtt, gtt_used = _of_kind(device, "gtt")
    total = None if vram is None or gtt is None else vram + gtt
    used = None if vram_used is None or gtt_used is None else vram_used + gtt_used
    return total, used, None if vram is None or vram_used is None else max(0, vram - vram_used)


def _of_kind(device: Path, kind: str) -> tuple[int | None, int | None]:
    """Total and used; what can't be true is unknown."""
    total, used = (read_int(device / f"mem_info_{kind}_{word}") for word in ("total", "used"))
    if total is None or total <= 0:
        return None, None
    return total, used if used is not None and 0 <= used <= total else None


def _amd_name(card: PciDisplay, roots: Roots) -> str:
    """The board's own name, else libdrm's table of device and revision, else the PCI ids."""
    product = read_text(card.path / "product_name")
    if product:
        return clean_line(product, 120)
    revision, device = read_int(card.path / "revision"), card.device
    if device is not None and revision is not None:
        for line in (read_text(roots.share / "libdrm" / "amdgpu.ids") or "").splitlines():
            parts = [part.strip() for part in line.split(",", 2)]
            if len(parts) == 3 and (parts[0].lower(), parts[1].lower()) == (f"{device:x}", f"{revision:02x}"):
                return clean_line(parts[2], 120)
    return f"AMD GPU (PCI {card.vendor:04x}:{device or 0:04x})"


def _driver(device: Path) -> str | None:
    """The kernel module that serves the device."""
    try:
        return (device / "driver").resolve(strict=True).name
    except OSError:
        return None
