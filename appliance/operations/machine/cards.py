"""Which of the driver's GPUs a device of the engine is, and what the driver knows of it beside.

An engine names a card as it likes and counts in an order of its own: CUDA the fastest first unless told
otherwise, the driver by PCI address. So a card is found by the surest sign there is: its address, then the
user's choice of devices, then its name. Among equal names the one whose free memory comes nearest; a wrong
pair costs little, since free memory is never taken as more than the engine says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from appliance.hardware import Gpu
from appliance.planning import DeviceMemory
from appliance.units import MIB

_ALIKE = 64 * MIB
"""Free memory that differs by less tells no two cards apart: it moves while it is read."""
_VENDORS = {
    "cuda": ("nvidia", "geforce", "quadro", "tesla"),
    "rocm": ("amd", "radeon"),
    "vulkan": ("intel",),
    "metal": ("apple",),
}
"""Words of a description, by the backend that detection gives to the vendor's GPUs."""


def matched(
    devices: Sequence[DeviceMemory], gpus: Sequence[Gpu], env: Mapping[str, str]
) -> tuple[Gpu | None, ...]:
    """The GPU that each device is; None for one made of the CPU, and where nothing tells.

    `env` is what the engine is started with: the user's choice of devices stands there.
    """
    chosen = _chosen(devices, gpus, env)
    pairs: dict[int, int] = {}
    _pair(pairs, devices, gpus, lambda d, g: devices[d].pci is not None and devices[d].pci == gpus[g].pci)
    _pair(pairs, devices, gpus, lambda d, g: chosen.get(d) == g and _named(devices[d], gpus[g]))
    _pair(pairs, devices, gpus, lambda d, g: devices[d].description.lower() == gpus[g].name.lower())
    _pair(pairs, devices, gpus, lambda d, g: _named(devices[d], gpus[g]))
    _pair(pairs, devices, gpus, lambda d, g: _vendor(devices[d]) == gpus[g].backend, only=True)
    return tuple(gpus[pairs[index]] if index in pairs else None for index in range(len(devices)))


def _pair(
    pairs: dict[int, int],
    devices: Sequence[DeviceMemory],
    gpus: Sequence[Gpu],
    same: Callable[[int, int], bool],
    *,
    only: bool = False,
) -> None:
    """Add the pairs with this sign, the nearest free memory first; with `only`, those with no rival."""
    used = set(pairs.values())
    fitting = [
        (_apart(device, gpu), abs(d - g), d, g)
        for d, device in enumerate(devices)
        for g, gpu in enumerate(gpus)
        if d not in pairs and g not in used and _possible(device, gpu) and same(d, g)
    ]
    for _, _, d, g in sorted(fitting):
        rivals = sum(d == device or g == gpu for _, _, device, gpu in fitting)
        if d not in pairs and g not in pairs.values() and not (only and rivals > 1):
            pairs[d] = g


def _possible(device: DeviceMemory, gpu: Gpu) -> bool:
    other_card = device.pci is not None and gpu.pci is not None and device.pci != gpu.pci
    return not device.software and not other_card


def _apart(device: DeviceMemory, gpu: Gpu) -> int:
    if device.free is None or gpu.free is None:
        return 0
    return abs(device.free - gpu.free) // _ALIKE


def _named(device: DeviceMemory, gpu: Gpu) -> bool:
    """The card's name stands in the description; `(RADV NAVI31)` may follow, `Ti` may not."""
    return bool(re.search(rf"(?:^|\s){re.escape(gpu.name)}(?:\s*\(|$)", device.description, re.IGNORECASE))


def _vendor(device: DeviceMemory) -> str | None:
    if device.backend in ("cuda", "rocm", "metal"):
        return device.backend
    words = device.description.lower()
    return next((backend for backend, names in _VENDORS.items() if any(n in words for n in names)), None)


def _chosen(devices: Sequence[DeviceMemory], gpus: Sequence[Gpu], env: Mapping[str, str]) -> dict[int, int]:
    """Which GPU each CUDA device is, as far as the environment fixes it.

    Numbers mean something only with `CUDA_DEVICE_ORDER=PCI_BUS_ID`; UUIDs, which may be cut short, always do.
    """
    cuda = [index for index, device in enumerate(devices) if device.backend == "cuda"]
    by_number = {gpu.index: place for place, gpu in enumerate(gpus) if gpu.backend == "cuda"}
    by_bus = env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    listed = env.get("CUDA_VISIBLE_DEVICES")
    words = [str(number) for number in sorted(by_number)] if listed is None else listed.split(",")
    chosen: dict[int, int] = {}
    for device, word in zip(cuda, (word.strip() for word in words), strict=False):
        if word.isdecimal() and by_bus and int(word) in by_number:
            chosen[device] = by_number[int(word)]
        elif word.startswith("GPU-"):
            places = [place for place in by_number.values() if gpus[place].id.startswith(word)]
            if len(places) == 1:
                chosen[device] = places[0]
    return chosen
