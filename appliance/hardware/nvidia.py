"""NVIDIA GPUs through NVML; where it can't be asked, what the PCI bus and the driver's /proc files tell."""

from __future__ import annotations

from dataclasses import dataclass, replace

from appliance.hardware import cgroup, holders, nvml
from appliance.hardware.nvml import NvmlDown, query
from appliance.hardware.sysfs import (
    NVIDIA,
    PciDisplay,
    Roots,
    displays,
    nvidia_asleep,
    pci_address,
    read_text,
)
from appliance.hardware.types import Gpu, Trouble
from appliance.text import clean_line

_MEMORY_V2 = 0x02000028
"""sizeof(nvmlMemory_v2_t) | 2 << 24 (nvml.h)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes; `total = free + used + reserved` where the driver tells v2."""

    total: int | None = None
    free: int | None = None
    used: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """GPUs and what to tell people about them."""

    gpus: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()
    trouble: Trouble | None = None
    """Why one of them can't be used."""


def detect(roots: Roots, *, wake: bool = False) -> Found:
    """The NVIDIA GPUs of this machine. Leaves a sleeping GPU asleep unless `wake`. Never raises NvmlDown."""
    cards = [display for display in displays(roots) if display.vendor == NVIDIA]
    if not wake and nvidia_asleep(roots):
        gpus = from_bus(roots)
        return Found(
            gpus, tuple(f"{gpu.name} sleeps to save power; its memory was not read." for gpu in gpus)
        )
    try:
        with nvml.session():
            found = _from_nvml()
    except NvmlDown as error:
        if not cards and error.trouble.state == "library_missing":
            return Found()
        why = _where_it_stands(error.trouble, roots)
        return Found(from_bus(roots), (str(why),), why)
    return found


def _where_it_stands(why: Trouble, roots: Roots) -> Trouble:
    """In a container that lost its devices, NVML answers with an unknown error or lacks the permission."""
    lost = why.state in ("unknown_error", "no_permission") and cgroup.in_container(roots)
    return nvml.trouble("container") if lost else why


def from_bus(roots: Roots) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs as the PCI bus shows them, without one NVML call."""
    cards = (display for display in displays(roots) if display.vendor == NVIDIA)
    return tuple(_from_bus(card, index, roots) for index, card in enumerate(cards))


def handles() -> list[tuple[int, object]]:
    """Index and handle of every device. Raises NvmlDown when not even one can be had."""
    found: list[tuple[int, object]] = []
    down: NvmlDown | None = None
    for index in range(query("nvmlDeviceGetCount") or 0):
        try:
            handle = query("nvmlDeviceGetHandleByIndex", index)
        except NvmlDown as error:
            down = error
            continue
        if handle is not None:
            found.append((index, handle))
    if not found and down is not None:
        raise down
    return found


def identify(index: int, handle: object) -> Gpu:
    """Name, UUID, address and memory of one device. Raises NvmlDown when it is lost."""
    uuid = query("nvmlDeviceGetUUID", handle)
    info = query("nvmlDeviceGetPciInfo", handle)
    address = pci_address(str(info.busId)) if info is not None else None
    memory = read_memory(handle)
    return Gpu(
        id=clean_line(str(uuid)) if uuid else f"pci:{address}" if address else f"nvidia-{index}",
        index=index,
        name=clean_line(str(query("nvmlDeviceGetName", handle) or "NVIDIA GPU"), 120),
        backend="cuda",
        total=memory.total,
        free=memory.free,
        used=memory.used,
        driver=_driver(),
        integrated=False if memory.total is not None else None,
        pci=address,
    )


def read_memory(handle: object) -> Memory:
    """Memory v2, else v1; unknown on unified-memory devices (GB10), which refuse both or say a total of 0."""
    info = query("nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2) or query("nvmlDeviceGetMemoryInfo", handle)
    if info is None or not info.total:
        return Memory()
    return Memory(int(info.total), int(info.free), int(info.used))


def _driver() -> str | None:
    version = query("nvmlSystemGetDriverVersion")
    return clean_line(str(version), 60) if version else None


def _from_nvml() -> Found:
    gpus: list[Gpu] = []
    notes: list[str] = []
    trouble: Trouble | None = None
    for index, handle in handles():
        try:
            gpu = identify(index, handle)
            gpu = replace(gpu, holders=holders.of_nvidia(handle, gpu.total))
        except NvmlDown as error:
            trouble = error.trouble
            notes.append(f"GPU {index}: {trouble}")
            gpus.append(Gpu(id=f"nvidia-{index}", index=index, name="NVIDIA GPU", backend="cuda"))
            continue
        gpus.append(gpu)
        if gpu.total is None:
            notes.append(f"{gpu.name} does not tell its memory; it may share the system's RAM.")
    if not gpus:
        notes.append("The NVIDIA driver runs and shows no GPU to this user or container.")
    return Found(tuple(gpus), tuple(notes), trouble)


def _from_bus(card: PciDisplay, index: int, roots: Roots) -> Gpu:
    """A GPU without NVML. The driver's /proc file has its model and, once it was used, its UUID."""
    text = read_text(roots.proc / "driver" / "nvidia" / "gpus" / card.address / "information") or ""
    facts = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }
    uuid = facts.get("GPU UUID", "")
    device = f" (PCI {card.vendor:04x}:{card.device:04x})" if card.device is not None else ""
    return Gpu(
        id=uuid if uuid.startswith("GPU-") and "?" not in uuid else f"pci:{card.address}",
        index=index,
        name=clean_line(facts.get("Model") or f"NVIDIA GPU{device}", 120),
        backend="cuda",
        pci=card.address,
        asleep=card.suspended,
    )
