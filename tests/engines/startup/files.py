"""Files whose place, RAM or disk, a test decides."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.engines.startup import Preheat, cached

MIB = 1 << 20
END_S = 30.0


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
        for _ in range(5):  # pages that are on their way to a list of the kernel stay the first time
            os.fsync(fd)
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


class Gate(Preheat):
    """Reads nothing until it is let through."""

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__(files, block=MIB, clock=self._tick)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def _tick(self) -> float:
        self.reached.set()
        self.go_on.wait(END_S)
        return 0.0
