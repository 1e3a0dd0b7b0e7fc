"""Bytes at their places in one open file, with a digest of each chunk as it came.

Several threads may write at the same time, each to chunks of its own. A chunk fills from its front.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import xxhash

from appliance.errors import ApplianceError, DiskFull, DownloadError
from appliance.store import chunks, disk
from appliance.store.chunkmap import ChunkMap
from appliance.store.partlog import Line, PartLog
from appliance.store.threads import StopFlag

_READ = 1 << 20
_UNLOGGED = 128 << 10
"""Bytes of a chunk that may be here without a line in the log: what a kill may cost a slow connection. A fast
one brings more at once, and has a line for each such piece."""
_UNLOGGED_S = 0.1
_NAP_S = 0.05


class Unwritable(DownloadError):
    """The disk refused; no other source can help."""


class ChunkFile:
    """The mechanics of a partial file. Every method blocks: call them in threads."""

    def __init__(self, path: Path, log: PartLog) -> None:
        self.path = path
        self._log = log
        self.map = ChunkMap(log.head.size, log.head.chunk)
        self._handle: int | None = None
        self._running: dict[int, xxhash.xxh3_64] = {}
        """The digest so far of each chunk that is being written."""
        self._logged: dict[int, tuple[Line, float]] = {}
        """What the log knows of such a chunk, and since when."""
        self.changed = threading.Condition()
        """Guards map and log; notified when the front of the file grew or changed."""
        self.hashed: int | None = None
        """How far a hasher is; None = there is none."""
        self.rewound: int | None = None
        """The first byte that changed after it may have been hashed; the hasher takes it."""

    @property
    def handle(self) -> int:
        if self._handle is None:
            raise RuntimeError("the part file is not open")
        return self._handle

    @property
    def offset(self) -> int:
        """The first byte that is not here."""
        return self.map.frontier

    @property
    def arrived(self) -> int:
        """Bytes that are here, anywhere in the file."""
        return self.map.arrived

    def write(self, at: int, data: bytes | memoryview) -> None:
        """Put bytes at `at`, which must be where their chunk goes on. Raises DiskFull or Unwritable."""
        rest = memoryview(data)
        while rest:
            piece = rest[: self.map.stop(at // self.map.chunk) - at]
            self._extend(at // self.map.chunk, at, piece)
            at, rest = at + len(piece), rest[len(piece) :]

    @property
    def lag(self) -> int:
        """Bytes that could be hashed and are not yet."""
        return 0 if self.hashed is None else self.map.frontier - self.hashed

    def pace(self, lag: int, stop: StopFlag) -> None:
        """Wait while the hash is more than `lag` bytes behind. Ends with `stop`.

        On few cores the threads that receive would otherwise leave it too little time, and the whole would
        wait for it at the end.
        """
        if self.lag > lag:
            with self.changed:
                while self.lag > lag and not stop.is_set:
                    self.changed.wait(_NAP_S)

    def flush_log(self, at: int) -> None:
        """Tell the log of all bytes of the chunk in which `at` is: a connection has ended there."""
        index = at // self.map.chunk
        with self.changed, self.wrapped():
            state = self._running.get(index)
            if state is not None:
                self._note(Line(index, self.map.lengths[index], state.hexdigest()))

    def forget(self, index: int) -> None:
        """A chunk counts as missing."""
        self._shorten(index, 0, xxhash.xxh3_64())

    def cut(self, index: int, length: int, stop: StopFlag) -> None:
        """Only the first `length` bytes of a chunk count as here."""
        with self.wrapped():
            state, _ = self.state_of(index, length, stop)
        self._shorten(index, length, state)

    def state_of(self, index: int, length: int, stop: StopFlag) -> tuple[xxhash.xxh3_64, int]:
        """The digest of the first `length` bytes of a chunk as they are on disk, and how many there were.

        Raises OSError, Stopped.
        """
        state, done, start = xxhash.xxh3_64(), 0, self.map.start(index)
        view = memoryview(bytearray(min(_READ, max(1, length))))
        while done < length:
            stop.check()
            n_bytes = chunks.read_at(self.handle, view[: length - done], start + done)
            if n_bytes == 0:
                break
            state.update(view[:n_bytes])
            done += n_bytes
        return state, done

    def accept(self, index: int, length: int, state: xxhash.xxh3_64) -> None:
        """The first `length` bytes of a chunk were read back and are what they were."""
        line = Line(index, length, state.hexdigest())
        with self.changed:
            self.map.set(index, length, line.digest)
            if length < self.map.full(index):
                self._running[index] = state
                self._logged[index] = (line, time.monotonic())
            self.changed.notify_all()

    def _extend(self, index: int, at: int, data: memoryview) -> None:
        if at != self.map.start(index) + self.map.lengths[index]:
            raise RuntimeError(f"byte {at} is not where chunk {index} goes on")
        with self.wrapped():
            chunks.write_at(self.handle, data, at)
        state = self._running.setdefault(index, xxhash.xxh3_64())
        state.update(data)
        with self.changed, self.wrapped():
            self._grew(index, state, len(data))

    def _grew(self, index: int, state: xxhash.xxh3_64, n_bytes: int) -> None:
        front, length = self.map.frontier, self.map.lengths[index] + n_bytes
        whole = length == self.map.full(index)
        known, when = self._logged.get(index, (Line(index, 0, ""), 0.0))
        due = whole or length - known.length >= _UNLOGGED or time.monotonic() - when >= _UNLOGGED_S
        self.map.set(index, length, state.hexdigest() if whole else "")
        if due:
            self._note(Line(index, length, state.hexdigest()))
        if whole:
            del self._running[index], self._logged[index]
        if self.map.frontier != front:
            self.changed.notify_all()

    def _shorten(self, index: int, length: int, state: xxhash.xxh3_64) -> None:
        with self.changed, self.wrapped():
            self.map.set(index, length, "")
            self._running[index] = state
            self._note(Line(index, length, state.hexdigest()))
            changed = self.map.start(index) + length
            self.rewound = changed if self.rewound is None else min(self.rewound, changed)
            self.changed.notify_all()

    def _note(self, line: Line) -> None:
        known = self._logged.get(line.index)
        if known is not None and known[0] == line:
            return
        self._logged[line.index] = (line, time.monotonic())
        if not self._log.is_open:
            self._log.start(self.lines())
        self._log.add(line)

    def lines(self) -> list[Line]:
        """What the log may say now. Of a chunk that is being written: what it said last."""
        found = []
        for index, length in enumerate(self.map.lengths):
            if index in self._running:
                if index in self._logged:
                    found.append(self._logged[index][0])
            elif length:
                found.append(Line(index, length, self.map.digests[index]))
        return found

    @contextlib.contextmanager
    def wrapped(self) -> Iterator[None]:
        """Foreign errors of the disk become ours."""
        try:
            yield
        except OSError as error:
            raise self.failed(error) from None

    def failed(self, error: OSError) -> ApplianceError:
        found = disk.write_error(error, self.path, max(0, self.map.size - self.map.arrived))
        if isinstance(found, DiskFull):
            return found
        return Unwritable(found.message, cause=found.cause, hint=found.hint)

    def close_handle(self) -> None:
        self._log.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
