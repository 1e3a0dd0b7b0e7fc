"""Reads a model's files into the page cache ahead of its engine, in a thread that can be stopped at any time.

An engine maps the file and touches it in the order of its tensors, or reads it tensor by tensor; a plain
sequential read is what disks do fastest, and it begins seconds earlier: while the machine is looked at, the
plan is made and the engine starts. What is in RAM already is passed over.

There is one reader at a time in this process: two would make a disk jump. A second one waits for the first.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

from appliance.engines.startup.disks import TELLING
from appliance.engines.startup.page_cache import resident_in
from appliance.text import clean_line

log = logging.getLogger("appliance.engines")

BLOCK = 4 << 20
"""Bytes of one read; it is also the longest that a stop waits for."""
WINDOW = 64 << 20
"""Bytes that are looked at together: passed over when they are in RAM, timed when none of them is."""
_TIMED = 16 << 20
"""Bytes of a window from which on it is timed: a short one tells of starting, not of speed."""
_COLD, _NEARLY_COLD, _WARM = 0.05, 0.5, 0.99
"""Shares of a window in RAM. It says something of the disk with at most the first before the window ahead of
it was read, and at most the second when its own turn comes: by then the system has read some MiB ahead.
From the third on it is passed over.
"""
_turn = threading.Condition()
_reading: list[Preheat] = []
"""The one that reads now."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a preheat did."""

    n_bytes: int = 0
    """Read, from the disk or from RAM."""
    passed_over: int = 0
    """Bytes that were in RAM."""
    cold_bytes: int = 0
    """Read in windows of which next to nothing was in RAM before."""
    speeds: tuple[float, ...] = ()
    """Bytes per second of each of those."""
    whole: bool = False
    """It came to the end of the last file."""
    problem: str | None = None
    """Why it ended early, when a file can't be read."""

    @property
    def disk_bytes_per_s(self) -> float | None:
        """The disk's read speed; None when too little came from it to tell.

        What three quarters of the windows did not exceed: others that use the disk or the processor only make
        a disk look slower than it is.
        """
        if self.cold_bytes < TELLING or not self.speeds:
            return None
        return sorted(self.speeds)[3 * len(self.speeds) // 4]


class Preheat:
    """One run over some files. `start` once; `stop` as often as wanted; `report` at any time."""

    def __init__(
        self, files: Sequence[Path], *, block: int = BLOCK, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._files, self._block, self._clock = tuple(files), block, clock
        self._stop = threading.Event()
        self._report = Report()
        self._thread = threading.Thread(target=self._run, name="preheat", daemon=True)

    @property
    def report(self) -> Report:
        """What it has done so far."""
        return self._report

    def start(self) -> None:
        """Begin, or wait for the reader before it. Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Have it end after the block at work. Returns at once; of no effect when it has ended."""
        self._stop.set()
        with _turn:
            _turn.notify_all()

    def join(self, limit_s: float) -> bool:
        """Wait for its end; False when it still runs. Blocks: call it in a thread."""
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if not self._take_turn():
            return
        try:
            done = all(self._file(path) for path in self._files)
            self._report = replace(self._report, whole=done and not self._stop.is_set())
        except OSError as error:
            why = clean_line(error.strerror or type(error).__name__, 200)
            self._report = replace(self._report, problem=why)
            log.warning("a model file can't be read ahead of its engine: %s", why)
        finally:
            with _turn:
                _reading.clear()
                _turn.notify_all()

    def _take_turn(self) -> bool:
        """Wait until nobody else reads. False when it was stopped meanwhile."""
        with _turn:
            while _reading and not self._stop.is_set():
                _turn.wait()
            if self._stop.is_set():
                return False
            _reading.append(self)
            return True

    def _file(self, path: Path) -> bool:
        """Read one; False when it was stopped."""
        with open(path, "rb", buffering=0, opener=_not_waiting) as file:
            size = os.fstat(file.fileno()).st_size
            _tell_sequential(file.fileno())
            buffer = memoryview(bytearray(self._block))
            self._windows(file, size, buffer)
        return not self._stop.is_set()

    def _windows(self, file: FileIO, size: int, buffer: memoryview) -> None:
        fd, was = file.fileno(), resident_in(file.fileno(), 0, min(size, WINDOW))
        for at in range(0, size, WINDOW):
            if self._stop.is_set():
                return
            end = min(size, at + WINDOW)
            after = resident_in(fd, end, min(size, end + WINDOW))
            self._window(file, at, end, was, buffer)
            was = after

    def _window(self, file: FileIO, start: int, end: int, was: int | None, buffer: memoryview) -> None:
        length, now = end - start, self._report
        resident = resident_in(file.fileno(), start, end)
        if resident is not None and resident >= _WARM * length:
            self._report = replace(now, passed_over=now.passed_over + length)
            return
        began = self._clock()
        read = self._read(file, start, end, buffer)
        took = self._clock() - began
        now = replace(now, n_bytes=now.n_bytes + read)
        cold = _at_most(was, _COLD * length) and _at_most(resident, _NEARLY_COLD * length)
        if cold and _TIMED <= read == length and took > 0:
            now = replace(now, cold_bytes=now.cold_bytes + read, speeds=(*now.speeds, read / took))
        self._report = now

    def _read(self, file: FileIO, start: int, end: int, buffer: memoryview) -> int:
        at = start
        file.seek(start)
        while at < end and not self._stop.is_set():
            got = file.readinto(buffer[: min(len(buffer), end - at)])
            if not got:
                break  # it was cut meanwhile; the engine will say so
            at += got
        return at - start


def _at_most(resident: int | None, most: float) -> bool:
    return resident is not None and resident <= most


def _not_waiting(path: str, flags: int) -> int:
    """A FIFO would block for ever when it is opened."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _tell_sequential(fd: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
