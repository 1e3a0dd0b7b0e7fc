"""AMD and Intel GPUs through sysfs. Files and units: the kernel's amdgpu documentation, and nvtop's reader.

An APU has only a small carve-out as VRAM and uses system RAM through the GTT, so its usable memory is both
together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from appliance.hardware import holders
from appliance.hardware.sysfs import AMD, INTEL, PciDisplay, Roots, displays, folders, read_int, read_text
from appliance.hardware.types import Gpu, Program
from appliance.text import clean_line


@dataclass(frozen=True, slots=True)
class AmdReading:
    """One look at an amdgpu device. Celsius, watts, percent, bytes."""

    total: int | None = None
    free: int | None = None
    used: int | None = None
    apart: int | None = None
    """Free bytes of an APU's carve-out, which is no RAM."""
    temperature: float | None = None
    critical_at: float | None = None
    """The limit of the same sensor that `temperature` is from."""
    power: float | None = None
    power_limit: float | None = None
    utilisation: float | None = None


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


def read_amd(device: Path) -> AmdReading:
    """Read the device's files; what is missing stays None."""
    total, used, apart = _memory(device)
    hwmon = next(iter(folders(device / "hwmon", "hwmon*")), device / "hwmon" / "none")
    temperature, critical = _temperature(hwmon)
    power = read_int(hwmon / "power1_average")
    power = read_int(hwmon / "power1_input") if power is None else power
    busy = read_int(device / "gpu_busy_percent")
    return AmdReading(
        total=total,
        free=total - used if total is not None and used is not None else None,
        used=used,
        apart=apart,
        temperature=temperature,
        critical_at=critical,
        power=_scaled(power, 1_000_000),
        power_limit=_scaled(read_int(hwmon / "power1_cap"), 1_000_000),
        utilisation=None if busy is None else float(busy),
    )


def is_apu(device: Path) -> bool | None:
    """Only APUs have a northbridge voltage (in1), only discrete GPUs a junction temperature (temp2)."""
    for hwmon in folders(device / "hwmon", "hwmon*"):
        if (hwmon / "in1_input").exists():
            return True
        if (hwmon / "temp2_input").exists():
            return False
    return None


def _amd_gpu(card: PciDisplay, index: int, roots: Roots) -> Gpu:
    reading = AmdReading() if card.suspended else read_amd(card.path)
    unique = read_text(card.path / "unique_id")
    return Gpu(
        id=f"amd-{unique}" if unique else f"pci:{card.address}",
        index=index,
        name=_amd_name(card, roots),
        backend="rocm",
        total=reading.total,
        free=reading.free,
        used=reading.used,
        driver=_driver(card.path),
        integrated=is_apu(card.path),
        pci=card.address,
        asleep=card.suspended,
        apart=reading.apart,
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


def _memory(device: Path) -> tuple[int | None, int | None, int | None]:
    """Total, used, and what is free apart from RAM: VRAM, and for an APU the GTT on top of it."""
    vram, vram_used = (read_int(device / f"mem_info_vram_{word}") for word in ("total", "used"))
    if not is_apu(device):
        return vram, vram_used, None
    gtt, gtt_used = (read_int(device / f"mem_info_gtt_{word}") for word in ("total", "used"))
    total = None if vram is None or gtt is None else vram + gtt
    used = None if vram_used is None or gtt_used is None else vram_used + gtt_used
    return total, used, None if vram is None or vram_used is None else max(0, vram - vram_used)


def _temperature(hwmon: Path) -> tuple[float | None, float | None]:
    """The hot spot (`junction`) with its own limit, else `edge`; told apart by label, not by number."""
    sensors: dict[str, tuple[float | None, float | None]] = {}
    for file in folders(hwmon, "temp*_input"):
        stem = file.name.removesuffix("_input")
        label = read_text(hwmon / f"{stem}_label") or "edge"
        sensors[label] = (_scaled(read_int(file), 1_000), _scaled(read_int(hwmon / f"{stem}_crit"), 1_000))
    for label in ("junction", "edge"):
        if label in sensors and sensors[label][0] is not None:
            return sensors[label]
    return None, None


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


def _scaled(value: int | None, by: int) -> float | None:
    return None if value is None else value / by
