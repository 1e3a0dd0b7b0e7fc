"""How much of a file the system already holds in RAM, without reading any of it. Linux only, by mincore(2).

The kernel tells it only of files that this user owns or may write to (mm/mincore.c, `can_do_mincore`); of all
others it says that everything is resident, so they count as unknown here.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WINDOW = 1 << 30
"""Bytes asked about at once: a vector of 256 KiB."""
_PROT_READ, _MAP_SHARED = 1, 1
_NOT_RESIDENT = bytes(range(0, 256, 2))
"""Only the lowest bit of a page's byte has a meaning."""
_FAILED = ctypes.c_void_p(-1).value
_libc: list[Any] = []


@dataclass(frozen=True, slots=True)
class Cached:
    """How much of some files is in RAM."""

    n_bytes: int
    """Of all files."""
    resident: int

    @property
    def missing(self) -> int:
        return self.n_bytes - self.resident

    @property
    def fraction(self) -> float:
        """0 to 1."""
        return 1.0 if self.n_bytes == 0 else self.resident / self.n_bytes


def cached(files: Sequence[Path]) -> Cached | None:
    """What the system's page cache holds of these files; None where that can't be known.

    Takes about a millisecond per GiB. Raises nothing.
    """
    if not sys.platform.startswith("linux"):
        return None
    n_bytes = resident = 0
    for path in files:
        try:
            fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return None
        try:
            size = os.fstat(fd).st_size
            found = resident_in(fd, 0, size)
        except OSError:
            return None
        finally:
            os.close(fd)
        if found is None:
            return None
        n_bytes, resident = n_bytes + size, resident + found
    return Cached(n_bytes, resident)


def resident_in(fd: int, start: int, end: int) -> int | None:
    """Bytes of `start` to `end` that are in RAM; `start` is a multiple of the page size.

    None where the system does not tell.
    """
    if not sys.platform.startswith("linux") or not _is_told(fd):
        return None
    total = 0
    for at in range(start, end, _WINDOW):
        found = _window(fd, at, min(_WINDOW, end - at))
        if found is None:
            return None
        total += found
    return total


def _is_told(fd: int) -> bool:
    found, user = os.fstat(fd), os.geteuid()
    return user in (0, found.st_uid) or os.access(f"/proc/self/fd/{fd}", os.W_OK)


def _window(fd: int, at: int, length: int) -> int | None:
    """One call. The mapping is never touched, so it reads nothing and takes no memory but the vector."""
    libc = _library()
    if libc is None:
        return None
    address = libc.mmap(None, length, _PROT_READ, _MAP_SHARED, fd, at)
    if address in (None, _FAILED):
        return None
    try:
        pages = -(-length // mmap.PAGESIZE)
        vector = ctypes.create_string_buffer(pages)
        if libc.mincore(address, length, vector) != 0:
            return None
    finally:
        libc.munmap(address, length)
    resident = len(vector.raw.translate(None, _NOT_RESIDENT))
    return min(length, resident * mmap.PAGESIZE)


def _library() -> Any:
    """The C library with these calls; None where it has none of them."""
    if not _libc:
        _libc.append(_declared())
    return _libc[0]


def _declared() -> Any:
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = pointer
        libc.mmap.argtypes = [pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
        libc.munmap.argtypes = [pointer, size]
        libc.mincore.argtypes = [pointer, size, ctypes.c_char_p]
    except (OSError, AttributeError):
        return None
    return libc
