"""The partial file of one download: what has arrived, read back before it is believed.

After a kill `open` compares each logged chunk with its digest; what differs counts as missing. The final name
is given by `finish`, which the caller calls once the SHA-256 of the whole matched.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from appliance.catalog import File
from appliance.store import chunks, disk, layout, partlog, regular, sharing
from appliance.store.chunkfile import ChunkFile, Unwritable
from appliance.store.chunkmap import ChunkMap
from appliance.store.chunks import ChunkDigests
from appliance.store.partlog import Head, Line, PartLog
from appliance.store.regular import NotRegular
from appliance.store.threads import StopFlag

__all__ = ["Overlong", "PartFile", "Unwritable", "on_disk"]


class Overlong(Exception):
    """More bytes are here, or came, than the pin allows."""


class PartFile(ChunkFile):
    """The `.part` of `file` in `folder`. Use `open` first and `close` or `finish` last.

    `chunk` counts only for a file that does not exist yet: an older log keeps its own.
    """

    def __init__(self, folder: Path, file: File, *, chunk: int = chunks.CHUNK) -> None:
        log = PartLog(layout.log(folder, file), Head(file.size, file.sha256, chunk))
        super().__init__(layout.part(folder, file), log)
        self.file = file
        self._folder = folder
        self._begun = False

    def open(self, stop: StopFlag, moved: Callable[[int], None]) -> None:
        """Open, or make, the file and read back what it holds. `moved` is told the bytes read so far.

        A file that has another name (a snapshot) is copied first: nothing is written through it. Raises
        Overlong when it is larger than the pin, DiskFull, Unwritable or Stopped.
        """
        with self.wrapped():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._handle = self._opened(stop)
            size = os.fstat(self._handle).st_size
            if size > self.file.size:
                raise Overlong
            self._read_back(self._expected(size), stop, moved)
            layout.state(self._folder, self.file).unlink(missing_ok=True)  # of an earlier version
            if self.arrived:
                self._log.start(self.lines())
            else:
                layout.log(self._folder, self.file).unlink(missing_ok=True)
            self._begun = True

    def _opened(self, stop: StopFlag) -> int:
        log = layout.log(self._folder, self.file)
        try:
            kind = regular.kind_of(log)
            if kind is not None:
                raise NotRegular(log, kind)
            sharing.unshare(self.path, stop)
            return regular.open_file(self.path, os.O_RDWR | os.O_CREAT)
        except NotRegular as error:
            raise Unwritable(f"{error.filename} can't be used: {error.strerror}.", hint=error.hint) from None

    def _expected(self, size: int) -> list[Line]:
        """What the log says; without a log (an earlier version) the bytes before the first hole."""
        found = partlog.read(layout.log(self._folder, self.file), self.file.size)
        if found is not None and found[0].sha256 == self.file.sha256:
            head, lines = found
            self._log.head = head
            if head.chunk != self.map.chunk:
                self.map = ChunkMap(self.file.size, head.chunk)
            return [lines[index] for index in sorted(lines)]
        here = _before_hole(self.handle, size)
        return [
            Line(index, min(self.map.full(index), here - self.map.start(index)), "")
            for index in range(chunks.count(here, self.map.chunk))
        ]

    def _read_back(self, expected: list[Line], stop: StopFlag, moved: Callable[[int], None]) -> None:
        done = 0
        for line in expected:
            state, length = self.state_of(line.index, line.length, stop)
            same = length == line.length and line.digest in ("", state.hexdigest())
            if same and length:
                self.accept(line.index, length, state)
            done += line.length
            moved(done)

    def gaps(self) -> tuple[tuple[int, int], ...]:
        """What is missing, as (first byte, byte after the last)."""
        with self.changed:
            return self.map.gaps()

    def digests(self) -> ChunkDigests:
        """What each chunk was when it came. Call when all are here."""
        return ChunkDigests(self.file.sha256, self.map.chunk, tuple(self.map.digests))

    def come_from(self, source: str, etag: str | None) -> None:
        """Note where the next bytes come from. `source` holds no secrets."""
        with self.changed, self.wrapped():
            self._log.come_from(source, etag, self.lines())

    @property
    def source(self) -> str | None:
        """Where the last bytes came from, as the log says."""
        return self._log.head.source

    def etag(self, source: str) -> str | None:
        """The strong ETag under which the bytes here came from `source`; None when there is none."""
        head = self._log.head
        return head.etag if head.source == source and self.arrived else None

    def append(self, data: bytes | memoryview) -> None:
        """Put bytes at the first place that misses some, for sources that have an order.

        Raises Overlong, too; the bytes that fit are kept.
        """
        fits = memoryview(data)[: self.file.size - self.offset]
        self.write(self.offset, fits)
        if len(fits) < len(data):
            raise Overlong

    def put(self, at: int, data: bytes | memoryview, stop: StopFlag) -> bool:
        """Put bytes of a whole body at `at`: what is here already and the same is left alone.

        Call in the order of the bytes from 0 on. Returns True when bytes that were here differed.
        """
        rest, differed = memoryview(data), False
        while rest:
            index = at // self.map.chunk
            piece = rest[: self.map.stop(index) - at]
            here = max(0, min(len(piece), self.map.start(index) + self.map.lengths[index] - at))
            if here and not self._holds(at, piece[:here]):
                self.cut(index, at - self.map.start(index), stop)
                here, differed = 0, True
            if piece[here:]:
                self._extend(index, at + here, piece[here:])
            at, rest = at + len(piece), rest[len(piece) :]
        return differed

    def _holds(self, at: int, data: memoryview) -> bool:
        found = bytearray(len(data))
        with self.wrapped():
            n_bytes = chunks.read_at(self.handle, memoryview(found), at)
        return n_bytes == len(data) and found == data

    def replace(self, index: int, data: bytes | memoryview) -> None:
        """Put another content in place of a whole chunk."""
        self.forget(index)
        self.write(self.map.start(index), data)

    def differing(self, stop: StopFlag, moved: Callable[[int], None]) -> tuple[int, ...]:
        """Indexes of the whole chunks that are not on disk what they were when they came."""
        found: list[int] = []
        for index, digest in enumerate(self.map.digests):
            try:
                same = not digest or self.state_of(index, self.map.full(index), stop)[0].hexdigest() == digest
            except OSError:
                same = False  # can't be read now: writing it anew may help
            if not same:
                found.append(index)
            moved(self.map.stop(index))
        return tuple(found)

    def restart(self) -> None:
        """Forget what has arrived."""
        with self.changed, self.wrapped():
            os.ftruncate(self.handle, 0)
            self._log.close()
            layout.log(self._folder, self.file).unlink(missing_ok=True)
            self.map = ChunkMap(self.file.size, self.map.chunk)
            self._running.clear()
            self._logged.clear()
            self.rewound = 0
            self.changed.notify_all()

    def close(self) -> None:
        """Keep the file for a later resume; drop it when nothing has arrived."""
        was_open = self._handle is not None
        self.close_handle()
        if was_open and self._begun and not self.arrived:
            self.discard()

    def discard(self) -> None:
        """Remove the file and what is beside it."""
        for path in (self.path, layout.log(self._folder, self.file), layout.state(self._folder, self.file)):
            path.unlink(missing_ok=True)

    def finish(self) -> Path:
        """Give the verified file its final name, safe from a power cut. A failed rename keeps the part."""
        final = layout.final(self._folder, self.file)
        with self.wrapped():
            os.fsync(self.handle)
            self.close_handle()
            os.replace(self.path, final)
            with contextlib.suppress(OSError):  # without them only a later repair is dearer
                self.digests().write(layout.chunks(self._folder, self.file))
            layout.log(self._folder, self.file).unlink(missing_ok=True)
        layout.sync_folder(self._folder)
        return final


def on_disk(path: Path) -> int:
    """Bytes of a partial file for which no room has to be found: holes take none yet.

    0 when it is absent, and for one that has another name: it is copied before it is written.
    """
    try:
        stat = path.lstat()
    except OSError:
        return 0
    if stat.st_nlink > 1:
        return 0
    return min(stat.st_size, disk.used(stat))


def _before_hole(handle: int, size: int) -> int:
    """Bytes before the first hole."""
    try:
        return min(size, os.lseek(handle, 0, os.SEEK_HOLE)) if size else 0
    except OSError:
        return size  # this file system does not say
