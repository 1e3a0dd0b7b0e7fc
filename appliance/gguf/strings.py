"""Walks a long array of strings, each a little-endian u64 length and its bytes.

A vocabulary has a quarter of a million of them and each has to be passed to find the next key. A loop takes
0.2 µs for one; a regular expression that matches hundreds of short ones per call takes a quarter of that.
"""

from __future__ import annotations

import functools
import re
import struct

_U64 = struct.Struct("<Q")
_MANY = 512
"""Strings per call while all goes well."""
_FEW = 32
"""Strings per call around one that is not short."""
_NEAR_END = 32 << 10
"""Bytes left of a window that are walked without compiling another expression."""
SHORT = 128
"""Nearly all tokens and merges are shorter; the others take the slow way, one by one."""
_USUAL = (6, 9, 3, 12, 7, 8, 4, 11, 10, 5, 15, 13, 18, 14, 2, 21, 24, 17, 16, 27, 1, 0)
"""Lengths in vocabularies, the most frequent first."""


@functools.cache
def _run(count: int) -> re.Pattern[bytes]:
    """`count` short strings; compiled at the first use, for it takes 6 ms."""
    lengths = (*_USUAL, *(n for n in range(SHORT) if n not in _USUAL))  # tried in this order
    one = b"|".join(re.escape(bytes([n])) + rb"\0{7}.{%d}" % n for n in lengths)
    return re.compile(b"(?s)(?:" + one + b"){%d}+" % count)


def walk(window: bytes, at: int, count: int) -> tuple[int, int, int]:
    """Pass up to `count` strings that lie wholly in the window.

    Returns the new position, how many were passed, and how many of them were not short.
    """
    many, done, slow = _run(_MANY).match, 0, 0
    while done < count:
        if count - done >= _MANY and (found := many(window, at)) is not None:
            at = found.end()
            done += _MANY
            continue
        wanted = min(_MANY, count - done)
        at, passed, long_ones = _in_small_steps(window, at, wanted)
        done, slow = done + passed, slow + long_ones
        if passed < wanted:
            break  # the window's end
    return at, done, slow


def _in_small_steps(window: bytes, at: int, count: int) -> tuple[int, int, int]:
    """The same around a string that is not short, or near the window's end."""
    unpack, size, done, slow = _U64.unpack_from, len(window), 0, 0
    few = _run(_FEW).match if size - at > _NEAR_END else None
    while done < count:
        if few is not None and count - done >= _FEW and (found := few(window, at)) is not None:
            at = found.end()
            done += _FEW
            continue
        for _ in range(min(_FEW, count - done)):
            if at + 8 > size:
                return at, done, slow
            length = unpack(window, at)[0]
            if at + 8 + length > size:
                return at, done, slow
            at += 8 + length
            done += 1
            if length >= SHORT:  # what stopped the expression
                slow += 1
                break
    return at, done, slow
