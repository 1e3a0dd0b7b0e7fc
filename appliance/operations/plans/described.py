"""A machine in the user's words, `--gpu 8GiB --ram 16GiB`: one to be bought, or somebody else's.

    SIZE[,WORD...]   8GiB    24GiB,RTX 4090    4GiB,free=2900MiB    16GiB,unified    4GiB,integrated
    WORD             free=SIZE, unified, integrated, cuda, rocm, vulkan, metal, NNNGB/s, a card's name

Memory is sold in binary units, so 8GB and 8G mean 8GiB here. Nothing of the machine that runs this counts.
What a description leaves open is filled in with what such machines usually have, by the constants below; what
can't be guessed stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from appliance.errors import UsageError
from appliance.planning import DeviceMemory, HostMemory
from appliance.planning.speed.bandwidth import device_bandwidth, host_bandwidth
from appliance.text import clean_line
from appliance.units import GIB, MIB, parse_size, size

MOST_GPUS = 16
_LEAST, _MOST = 256 * MIB, 4096 * GIB
DRIVER_SHARE = 0.02
"""Of a card's memory, what its driver keeps for itself: an 8 GiB card offers about 8,030 MiB when idle."""
DISPLAY = 512 * MIB
"""What a desktop takes of the first card, which drives the screens: two screens without a browser."""
DESKTOP_BASE, DESKTOP_SHARE, DESKTOP_MOST = 2 * GIB, 0.125, 6 * GIB
"""RAM that the system, a browser and a chat program take: 4 GiB of 16 GiB, 6 GiB of 32 GiB."""
_UNIFIED_SHARE = {"cuda": 1.0, "rocm": 0.5, "vulkan": 0.5}
"""Of unified memory, what the GPU may use: all on NVIDIA's boards, half by Linux's default for the others."""
_METAL_SMALL, _METAL_LARGE, _METAL_LARGE_FROM = 2 / 3, 0.75, 37 * GIB
"""Of a Mac's memory, by `recommendedMaxWorkingSetSize`: two thirds up to 36 GiB, else three quarters."""
_CORES = 8
"""For the speed of RAM alone; the engine chooses its threads itself."""
_BACKENDS = ("cuda", "rocm", "vulkan", "metal")
_MAKERS = (
    (re.compile(r"^(apple )?m\d", re.IGNORECASE), "metal"),
    (re.compile(r"\b(rx|radeon|amd|instinct|mi\d\d)\b", re.IGNORECASE), "rocm"),
    (re.compile(r"\b(arc|intel|iris|uhd)\b", re.IGNORECASE), "vulkan"),
)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*GB/s", re.IGNORECASE)
_SOLD = re.compile(r"(?<=[\d ])([kmgt])b?$", re.IGNORECASE)
_HINT = 'Write it like 8GiB, "24GiB,RTX 4090", 4GiB,free=2900MiB or 16GiB,unified.'


@dataclass(frozen=True, slots=True)
class Described:
    """The machine that the plan is for."""

    devices: tuple[DeviceMemory, ...]
    host: HostMemory

    def to_json(self) -> dict[str, Any]:
        """What was taken to be there; sizes are bytes."""
        return {
            "gpus": [
                {
                    "name": device.name,
                    "description": device.description,
                    "backend": device.backend,
                    "total": device.total,
                    "free": device.free,
                    "integrated": device.integrated,
                    "bandwidth": device.bandwidth,
                }
                for device in self.devices
            ],
            "ram": {"total": self.host.total, "available": self.host.available},
        }


@dataclass(frozen=True, slots=True)
class _Card:
    """One specification, read."""

    total: int
    free: int | None = None
    kind: str = "discrete"
    backend: str | None = None
    name: str | None = None
    rate: float | None = None


def described(gpus: Sequence[str], ram: str | None) -> Described | None:
    """The machine of these specifications; None when nothing was described. Raises UsageError.

    Without `ram` its size is unknown, unless a GPU shares it; without `gpus` there is none.
    """
    if not gpus and ram is None:
        return None
    if len(gpus) > MOST_GPUS:
        raise UsageError(f"{len(gpus)} GPUs are more than a plan takes.", hint=f"At most {MOST_GPUS}.")
    cards = [_card(spec) for spec in gpus]
    total = _ram(cards, None if ram is None else _size(ram, "--ram"))
    apple = next((card.name for card in cards if card.backend == "metal" and card.name), None)
    found = host_bandwidth(None if apple is None else f"Apple {_bare(apple)}", _CORES)
    host = HostMemory(total, None if total is None else available(total), None, found and found[0])
    first = next((i for i, card in enumerate(cards) if card.kind == "discrete"), None)
    return Described(tuple(_device(i, card, host, i == first) for i, card in enumerate(cards)), host)


def available(total: int) -> int:
    """RAM that is left beside a desktop."""
    return max(total - min(DESKTOP_BASE + int(total * DESKTOP_SHARE), DESKTOP_MOST), total // 4)


def _card(spec: str) -> _Card:
    first, *words = (word.strip() for word in spec.split(","))
    given: dict[str, Any] = {}
    for word in filter(None, words):
        what, value = _read(word, spec)
        if what in given:
            raise UsageError(
                f"--gpu {clean_line(spec, 80)} says {_WHAT[what]} twice.",
                cause=f"{clean_line(word, 60)!r} is the second one.",
                hint="For several cards repeat --gpu, once for each.",
            )
        given[what] = value
    card = _Card(_size(first, "--gpu"), **given)
    if card.name is not None:
        card = replace(card, backend=card.backend or _maker(card.name))
    if card.backend == "metal" and (card.name is not None or card.kind == "discrete"):
        card = replace(card, kind="unified")
    if card.free is not None and card.free > card.total:
        raise UsageError(f"{clean_line(spec, 80)}: more memory is free than there is.", hint=_HINT)
    return card


_WHAT = {
    "free": "what is free",
    "kind": "whose memory it is",
    "backend": "the backend",
    "rate": "the memory's speed",
    "name": "the card's name",
}


def _read(word: str, spec: str) -> tuple[str, Any]:
    """What a word of a specification says of the card: the field, and its value."""
    low = word.lower()
    if low.startswith("free="):
        return "free", _size(word[5:], "free=", least=0)
    if low in ("unified", "integrated"):
        return "kind", low
    if low in _BACKENDS:
        return "backend", low
    rate = _RATE.fullmatch(word)
    if rate is not None and float(rate[1]) > 0:
        return "rate", float(rate[1]) * 1e9
    if device_bandwidth(word, "") is None:
        raise UsageError(
            f"{clean_line(word, 60)!r} in --gpu {clean_line(spec, 80)} is not a word that is known here.",
            cause="It is no backend (cuda, rocm, vulkan, metal) and no card whose memory speed is listed.",
            hint=f"{_HINT} For another card give the speed of its memory instead: 8GiB,272GB/s.",
        )
    return "name", word


def _ram(cards: Sequence[_Card], ram: int | None) -> int | None:
    """The machine's RAM; a unified GPU's size is it."""
    shared = {card.total for card in cards if card.kind == "unified"}
    if not shared:
        return ram
    if len(shared) > 1 or (ram is not None and shared != {ram}):
        given = sorted(shared if ram is None else shared | {ram})
        raise UsageError(
            "A machine has one unified memory: its size is the one of the RAM.",
            cause=f"Given were {' and '.join(map(size, given))}.",
            hint="Leave --ram out, or say `integrated` for a GPU that may use only a part of it.",
        )
    return shared.pop()


def _device(index: int, card: _Card, host: HostMemory, drives_display: bool) -> DeviceMemory:
    backend = card.backend or (
        "metal" if card.kind == "unified" else "vulkan" if card.kind != "discrete" else "cuda"
    )
    total = card.total
    if card.kind == "unified":
        total = int(total * _unified_share(backend, total))
    if card.free is not None:
        free = min(card.free, total)
    elif card.kind == "discrete":
        free = max(int(total * (1 - DRIVER_SHARE)) - (DISPLAY if drives_display else 0), 0)
    else:
        free = total if host.available is None else min(total, host.available)
    return DeviceMemory(
        name=f"GPU{index}",
        description=card.name or f"{size(card.total)} {card.kind if card.kind != 'discrete' else 'card'}",
        backend=backend,
        total=total,
        free=free,
        integrated=card.kind != "discrete",
        bandwidth=card.rate or (device_bandwidth(card.name, backend) if card.name else None),
    )


def _unified_share(backend: str, total: int) -> float:
    if backend == "metal":
        return _METAL_LARGE if total >= _METAL_LARGE_FROM else _METAL_SMALL
    return _UNIFIED_SHARE[backend]


def _size(text: str, what: str, least: int = _LEAST) -> int:
    try:
        found = parse_size(_SOLD.sub(r"\1iB", text.strip()))
    except ValueError as error:
        raise UsageError(f"{what}: {clean_line(str(error), 120)}.", hint=_HINT) from None
    if not least <= found <= _MOST:
        raise UsageError(
            f"{what}: {clean_line(text, 40)} is not a size that a machine has.",
            cause=f"From {size(_LEAST)} to {size(_MOST)} can be planned for.",
            hint=_HINT,
        )
    return found


def _maker(name: str) -> str:
    return next((backend for pattern, backend in _MAKERS if pattern.search(name)), "cuda")


def _bare(name: str) -> str:
    return re.sub(r"^apple\s+", "", name, flags=re.IGNORECASE)
