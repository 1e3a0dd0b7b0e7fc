"""Files whose place, RAM or disk, a test decides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.engines.startup import cached

MIB = 1 << 20


def file_of(path: Path, n_bytes: int) -> Path:
    """A file on the disk, written through so that it can be dropped from RAM."""
    with path.open("wb") as file:
        for _ in range(n_bytes // MIB):
            file.write(os.urandom(MIB))
        file.write(os.urandom(n_bytes % MIB))
        file.flush()
        os.fsync(file.fileno())
    return path


def drop(path: Path) -> None:
    """Take it out of RAM. Skips the test where the file system keeps it there (tmpfs)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    found = cached([path])
    if found is None or found.fraction > 0.05:
        pytest.skip("this system does not tell what is in RAM, or keeps this file there")


def read(path: Path, start: int, end: int) -> None:
    """Bring a part into RAM, and no more than that."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(fd, end - start, start)
    finally:
        os.close(fd)
