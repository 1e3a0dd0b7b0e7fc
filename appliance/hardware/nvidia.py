"""NVIDIA GPUs through NVML; where it can't be asked, what the PCI bus and the driver's /proc files tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from appliance.hardware import cgroup, holders, nvml
from appliance.hardware.nvml import NvmlDown, query
from appliance.hardware.sensors.nvidia import memory
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


@dataclass(frozen=True, slots=True)
class Found:
    """GPUs and what to tell people about them."""

    gpus: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()
    trouble: Trouble | None = None
    """Why one of them can't be used."""


def detect(roots: Roots, *, wake: bool = False) -> Found:
    """The NVIDIA GPUs of this machine. Leaves a sleeping GPU asleep unless `wake`. Never raises NvmlDown."""
    cards = nvidia_cards(roots)
    if not wake and nvidia_asleep(roots):
        gpus = from_bus(roots)
        return Found(
            gpus, tuple(f"{gpu.name} sleeps to save power; its memory was not read." for gpu in gpus)
        )
    try:
        with nvml.session():
            found = _from_nvml(roots, wake=wake)
    except NvmlDown as error:
        if not cards and error.trouble.state == "library_missing":
            return Found()
        why = where_it_stands(error.trouble, roots)
        return Found(from_bus(roots), (str(why),), why)
    return found


def where_it_stands(why: Trouble, roots: Roots) -> Trouble:
    """In a container that lost its devices, NVML answers with an unknown error or lacks the permission."""
    lost = why.state in ("unknown_error", "no_permission") and cgroup.in_container(roots)
    return nvml.trouble("container") if lost else why


def from_bus(roots: Roots) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs as the PCI bus shows them, without one NVML call."""
    return tuple(_from_bus(card, index, roots) for index, card in enumerate(nvidia_cards(roots)))


def nvidia_cards(roots: Roots) -> list[PciDisplay]:
    """NVIDIA's GPUs on the PCI bus, by address; none where the system has no such files (WSL, Windows)."""
    return [display for display in displays(roots) if display.vendor == NVIDIA]


def handles(
    cards: Sequence[PciDisplay] = (), failed: dict[int, Trouble] | None = None
) -> list[tuple[int, object]]:
    """Index and handle of every device, of the awake ones only where one of `cards` sleeps: to take a handle
    is what wakes a device. `failed` gets those that can't be had; raises NvmlDown when not even one can.
    """
    found: list[tuple[int, object]] = []
    down: NvmlDown | None = None
    for index, call, argument in _doors(cards):
        try:
            handle = query(call, argument)
        except NvmlDown as error:
            down = error
            if failed is not None:
                failed[index] = error.trouble
            continue
        if handle is not None:
            nvml.label(handle, f"#{index}")
            found.append((index, handle))
    if not found and down is not None:
        raise down
    return found


def _doors(cards: Sequence[PciDisplay]) -> list[tuple[int, str, object]]:
    """How each device is asked for. NVML counts by bus address, so a card's place is its index."""
    if not any(card.suspended for card in cards):
        count = query("nvmlDeviceGetCount") or 0
        return [(index, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    return [
        (index, "nvmlDeviceGetHandleByPciBusId", card.address.encode())
        for index, card in enumerate(cards)
        if not card.suspended
    ]


def identify(index: int, handle: object) -> Gpu:
    """Name, UUID, address and memory of one device. Raises NvmlDown when it is lost."""
    uuid = query("nvmlDeviceGetUUID", handle)
    if uuid:
        nvml.label(handle, str(uuid))
    info = query("nvmlDeviceGetPciInfo", handle)
    address = pci_address(str(info.busId)) if info is not None else None
    found = memory(handle)
    return Gpu(
        id=clean_line(str(uuid)) if uuid else f"pci:{address}" if address else f"nvidia-{index}",
        index=index,
        name=clean_line(str(query("nvmlDeviceGetName", handle) or "NVIDIA GPU"), 120),
        backend="cuda",
        total=found.total,
        free=found.free,
        used=found.used,
        driver=_driver(),
        integrated=False if found.total is not None else None,
        pci=address,
    )


def _driver() -> str | None:
    version = query("nvmlSystemGetDriverVersion")
    return clean_line(str(version), 60) if version else None


def _from_nvml(roots: Roots, *, wake: bool) -> Found:
    cards = [] if wake else nvidia_cards(roots)
    gpus: list[Gpu] = [_from_bus(card, index, roots) for index, card in enumerate(cards) if card.suspended]
    notes = [f"{gpu.name} sleeps to save power; its memory was not read." for gpu in gpus]
    failed: dict[int, Trouble] = {}
    for index, handle in handles(cards, failed):
        try:
            gpu = identify(index, handle)
            gpus.append(replace(gpu, holders=holders.of_nvidia(handle, gpu.total)))
        except NvmlDown as error:
            failed[index] = error.trouble
            continue
        if gpu.total is None:
            notes.append(f"{gpu.name} does not tell its memory; it may share the system's RAM.")
    for index, why in failed.items():
        if why.state == "no_permission":
            continue  # beside others that may be read: it was given to somebody else
        failed[index] = where_it_stands(why, roots)
        notes.append(f"GPU {index}: {failed[index]}")
        gpus.append(Gpu(id=f"nvidia-{index}", index=index, name="NVIDIA GPU", backend="cuda"))
    if not gpus:
        notes.append("The NVIDIA driver runs and shows no GPU to this user or container.")
    ordered = tuple(sorted(gpus, key=lambda gpu: gpu.index))
    return Found(ordered, tuple(notes), next((why for why in failed.values()), None))


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
