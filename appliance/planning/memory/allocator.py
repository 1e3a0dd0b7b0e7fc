"""The engine's graph allocator: how large a compute buffer grows for a sequence of tensors.

Source: `ggml_dyn_tallocr_alloc` and `ggml_dyn_tallocr_free_bytes` of ggml-alloc.c (October 2026). A tensor
goes into the smallest hole that takes it, else to the end. Holes that are just too small are why a buffer
becomes larger than what is live at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

ALIGNMENT = 128
"""Bytes. CUDA's; others align to less, which changes nothing that can be seen."""

Step = tuple[bool, int, int]
"""(True: allocate, False: free; the tensor; the index of its size)."""


def peak(steps: Sequence[Step], sizes: Sequence[int]) -> int:
    """Bytes of the buffer after all steps. `sizes` are multiples of the alignment."""
    top = highest = 0
    starts: list[int] = []  # holes below `top`, by address
    ends: list[int] = []
    where: dict[int, int] = {}
    for allocate, tensor, size in steps:
        n_bytes = sizes[size]
        if not n_bytes:
            continue
        if not allocate:
            top = _free(starts, ends, where[tensor], n_bytes, top)
            continue
        best, room = -1, top + 1
        for index, end in enumerate(ends):
            hole = end - starts[index]
            if n_bytes <= hole <= room:
                best, room = index, hole
        if best < 0:
            where[tensor] = top
            top += n_bytes
            highest = max(highest, top)
            continue
        where[tensor] = starts[best]
        if room == n_bytes:
            del starts[best], ends[best]
        else:
            starts[best] += n_bytes
    return highest


def aligned(n_bytes: int) -> int:
    """A size as the allocator counts it."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def _free(starts: list[int], ends: list[int], start: int, n_bytes: int, top: int) -> int:
    """Give a piece back, joined with the holes beside it; the new end of the buffer."""
    end = start + n_bytes
    at = bisect_left(starts, start)
    if at < len(starts) and starts[at] == end:
        end = ends[at]
        del starts[at], ends[at]
    if at and ends[at - 1] == start:
        at -= 1
        start = starts[at]
        del starts[at], ends[at]
    if end == top:
        return start
    starts.insert(at, start)
    ends.insert(at, end)
    return top
