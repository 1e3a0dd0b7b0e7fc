"""Decode speed by rule: the bytes of a token over the bandwidth of their memory, plus a time per block.

Generating one token at a time does little arithmetic per byte, so reading the weights and the cache decides.
A data sheet's bandwidth is a peak; the rule takes `GPU_EFFICIENCY` of it. Beside reading, every block costs
time for starting its kernels, which is why the same card reaches 60-75 % of its data sheet with an 8B model,
and far less with a small one.

The constants were fitted together on published llama-bench runs (tg128). With 85 % of the data sheet they hit
within 20 %, from 1B to 8B: an RX 9070 XT with Vulkan (40 us per block) and with ROCm (80 us; issue 26663 of
ggml-org/llama.cpp), an RTX 3090 (pull request 21024) and an RTX 5090 (40 us), Apple chips from the M4 with
120 to the M2 Ultra with 800 GB/s (150 us; pull request 2917). Cards of before 2020 are slower than this says,
by a third, until their speed was seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from appliance.planning.result import BandwidthHow
from appliance.planning.speed.reads import Read

GPU_EFFICIENCY = 0.85
"""Of a data sheet's bandwidth. Not of seen ones, nor of RAM: `host_bandwidth` is what arrives already."""
ONE_PLACE = 0.95
"""Share of the bytes from which on a measured speed tells about one place."""
_MOSTLY_READING = 0.5
"""Share of a token's time that must be reading, or the speed tells nothing about bandwidth."""


def tokens_per_second(reads: Sequence[Read]) -> float | None:
    """Speed of one request alone; None when a place that is read has no bandwidth, or nothing is read."""
    total = 0.0
    for read in reads:
        bandwidth = _usable(read)
        if read.n_bytes and bandwidth is None:
            return None
        total += read.layers * read.layer_s
        if read.n_bytes and bandwidth is not None:
            total += read.n_bytes / bandwidth
    return 1 / total if any(read.n_bytes for read in reads) else None


def how_of(reads: Sequence[Read]) -> BandwidthHow:
    """The least certain source among the places that are read."""
    unseen = [read for read in reads if read.n_bytes and not read.seen]
    if any(not read.on_gpu for read in unseen):
        return "rule"
    return "table" if unseen else "seen"


def place_of(reads: Sequence[Read], speed: float) -> tuple[int, float] | None:
    """(Index of the read, bytes per second) that a measured speed means, or None when it can't be told.

    It can when at least `ONE_PLACE` of the bytes are at one place and reading them took most of the time: a
    very small model tells how long kernels take to start, not how fast memory is.
    """
    n_bytes = sum(read.n_bytes for read in reads)
    if not n_bytes or speed <= 0:
        return None
    index = max(range(len(reads)), key=lambda i: reads[i].n_bytes)
    if reads[index].n_bytes < ONE_PLACE * n_bytes:
        return None
    token_s = 1 / speed
    reading_s = token_s - sum(read.layers * read.layer_s for read in reads)
    if reading_s < _MOSTLY_READING * token_s:
        return None
    return index, n_bytes / reading_s


def _usable(read: Read) -> float | None:
    if read.bandwidth is None or read.bandwidth <= 0:
        return None
    return read.bandwidth * (GPU_EFFICIENCY if read.on_gpu and not read.seen else 1.0)
