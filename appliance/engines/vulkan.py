"""What Vulkan itself says of the devices that an engine lists: kind, the largest tensor, PCI address.

The largest tensor is the one that ggml's Vulkan backend takes (`supports_op` in ggml-vulkan.cpp):
`maxStorageBufferRange`, unless the driver indexes with 64 bits, and the largest buffer. The kind `integrated`
is what that backend takes for unified memory. CUDA and ROCm refuse no tensor by its size alone.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from appliance.planning import DeviceMemory
from appliance.text import clean_line

log = logging.getLogger("appliance.engines")

_VISIBLE = "GGML_VK_VISIBLE_DEVICES"
_MOST_LISTS = 16


@dataclass(frozen=True, slots=True)
class Physical:
    """One physical device as the driver describes it."""

    name: str
    kind: str
    """`integrated`, `discrete`, `virtual`, `cpu` or `other`."""
    largest: int | None
    """Bytes of the largest tensor."""
    pci: str | None
    uuid: str
    """The same for one card that two drivers show."""


_seen: dict[tuple[str, ...], tuple[Physical, ...]] = {}
"""What was found, by the names that an engine listed: a card that is plugged in later is asked for again."""


def remembered(names: tuple[str, ...]) -> tuple[Physical, ...] | None:
    """What an earlier look of this process found for these names; None: there was none."""
    return _seen.get(names)


def remember(names: tuple[str, ...], found: tuple[Physical, ...]) -> None:
    """Keep a look, also one that found nothing: a driver that hangs must not cost its time again."""
    if len(_seen) >= _MOST_LISTS:
        _seen.clear()
    _seen[names] = found


def names_of(devices: Iterable[DeviceMemory]) -> tuple[str, ...]:
    """The descriptions of the Vulkan devices."""
    return tuple(device.description for device in devices if device.backend == "vulkan")


def from_json(text: str) -> tuple[Physical, ...]:
    """The last line of `children/vulkan.py`; nothing where it is no such list."""
    try:
        rows = json.loads(text.strip().rpartition("\n")[2])
        return tuple(
            Physical(
                clean_line(str(row["name"]), 200),
                str(row["kind"]),
                None if row["largest"] is None else int(row["largest"]),
                None if row["pci"] is None else clean_line(str(row["pci"]), 20),
                str(row["uuid"]),
            )
            for row in rows
        )
    except (ValueError, KeyError, TypeError) as error:
        log.debug("Vulkan's list can't be read: %s", error)
        return ()


def refined(devices: Sequence[DeviceMemory], found: Sequence[Physical]) -> tuple[DeviceMemory, ...]:
    """The devices with what Vulkan says of them; those that it does not know by name stay as they are."""
    left = list(devices)
    for name in dict.fromkeys(names_of(devices)):
        same = [i for i, d in enumerate(devices) if d.backend == "vulkan" and d.description == name]
        exact = _named(_visible(found), name)
        if len(exact) == len(same):
            for index, physical in zip(same, exact, strict=True):
                left[index] = _with(devices[index], physical)
        elif known := [physical for physical in found if physical.name == name]:
            for index in same:
                left[index] = _with(devices[index], _least(known))
    return tuple(left)


def _visible(found: Sequence[Physical]) -> list[Physical]:
    """The devices in the engine's order. Like the backend, an index that can't be read ends the list."""
    wanted = os.environ.get(_VISIBLE)
    if wanted is None:
        return list(found)
    chosen: list[Physical] = []
    for word in re.split(r"[,\s]+", wanted.strip()):
        if not word.isdecimal() or int(word) >= len(found):
            break
        chosen.append(found[int(word)])
    return chosen


def _named(found: Sequence[Physical], name: str) -> list[Physical]:
    """Those with a name; a card that two drivers show under one name counts once."""
    once: dict[str, Physical] = {}
    for physical in found:
        if physical.name == name:
            once.setdefault(physical.uuid, physical)
    return list(once.values())


def _least(known: Sequence[Physical]) -> Physical:
    """What is safe to say of several that can't be told apart."""
    kinds = {physical.kind for physical in known}
    limits = [physical.largest for physical in known if physical.largest is not None]
    kind = kinds.pop() if len(kinds) == 1 else "other"
    return Physical(known[0].name, kind, min(limits, default=None), None, "")


def _with(device: DeviceMemory, physical: Physical) -> DeviceMemory:
    integrated = {"integrated": True, "discrete": False}.get(physical.kind, device.integrated)
    return replace(
        device,
        software=device.software or physical.kind == "cpu",
        integrated=integrated,
        max_tensor=physical.largest,
        pci=physical.pci,
    )
