"""Memory bandwidth by the name of a device or of a processor."""

from __future__ import annotations

import re

from appliance.planning.result import BandwidthHow
from appliance.planning.speed.table import GB_PER_S, VARIANTS

_GB = 1e9
_LONGEST = max(len(key.split()) for key in GB_PER_S)
_NOISE = frozenset({
    "nvidia", "geforce", "amd", "ati", "radeon", "intel", "apple", "graphics", "gpu", "design", "with",
    "generation", "edition", "series", "family", "tm", "r", "c", "corporation", "the",
})  # fmt: skip
_CORE_GB_PER_S = 8.0
"""What a core unpacks and multiplies of 4-bit weights: four cores of a 13900K do 12 each (issue 34 of
ggml-org/llama.cpp), old ones half of that."""
_SLOW_CORE_GB_PER_S = 4.0
"""The same of a virtual server's core: 4.8 was measured for one, 3.3 each for two (2.4 GHz, AVX2)."""
_SERVER = re.compile(r"\b(epyc|xeon)\b")
_RAM_GB_PER_S = 40.0
"""What arrives of two channels of DDR4-3200 (51.2 at their peak)."""
_OTHER_RAM: tuple[tuple[re.Pattern[str], float], ...] = (
    (re.compile(r"\b(epyc|xeon|threadripper)\b"), 100.0),
    (re.compile(r"\bultra [3579]\b|\bryzen (ai\b|[3579] (pro )?[789]\d{3})"), 60.0),
    (re.compile(r"\braspberry pi\b|\bcortex\b"), 12.0),
)
"""Machines with more channels, processors that take DDR5 alone, and small boards."""
_APPLE_CPU_SHARE = 0.6
"""The cores of an Apple chip get so much of its memory's bandwidth."""


def device_bandwidth(description: str, backend: str) -> float | None:
    """Bytes per second by data sheet; None for a name that is not in the table.

    The whole model name must match, variant words (`Ti`, `Laptop`, `XTX`) included: the bandwidth of a
    relative is worse than none. Memory sizes in a name count only where they tell two cards apart.
    """
    if backend == "cpu":
        return None
    known = _look_up(_words(description))
    return None if known is None else known * _GB


def host_bandwidth(cpu_name: str | None, cores: int | None) -> tuple[float, BandwidthHow] | None:
    """Bytes per second that weights are read with from RAM, as they arrive: nothing is to be taken off.

    The smaller of what memory gives and what the cores can unpack. None when the cores are unknown.
    """
    if cores is None or cores < 1:
        return None
    name = " ".join(_words(cpu_name or ""))
    by_cores = cores * (_CORE_GB_PER_S if name and not _SERVER.search(name) else _SLOW_CORE_GB_PER_S)
    chip = _look_up(_words(cpu_name)) if cpu_name and cpu_name.startswith("Apple ") else None
    if chip is not None:
        return min(chip * _APPLE_CPU_SHARE, by_cores) * _GB, "table"
    memory = next((known for pattern, known in _OTHER_RAM if pattern.search(name)), _RAM_GB_PER_S)
    return min(memory, by_cores) * _GB, "rule"


def _words(name: str) -> tuple[str, ...]:
    lowered = re.sub(r"\((?:r|tm|c)\)|[®™]", " ", name.lower()).replace("max-q", "maxq")
    return tuple(word for word in re.findall(r"[a-z0-9]+", lowered) if word not in _NOISE)


def _look_up(words: tuple[str, ...]) -> float | None:
    """The longest key that stands in the words, unless a variant word stands outside it."""
    for length in range(min(_LONGEST, len(words)), 0, -1):
        for start in range(len(words) - length + 1):
            found = GB_PER_S.get(" ".join(words[start : start + length]))
            if found is not None:
                rest = (*words[:start], *words[start + length :])
                return None if VARIANTS.intersection(rest) else found
    return None
