"""The SHA-256 of a file while it arrives, in a thread of its own that follows the front of the file.

Bytes come out of order; a hash needs them in order. So it reads what lies before the first missing byte
from the page cache, while it is still there: no second pass over the disk.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Callable

from appliance.store import chunks
from appliance.store.chunkfile import ChunkFile
from appliance.store.threads import StopFlag

_READ = 1 << 20
_NAP_S = 0.1


class Hasher:
    """Use `start`, then `digest`, and `close` before the file is closed.

    The state at the start of each chunk is kept (some 200 bytes each): when a chunk is replaced, only the
    bytes from there on are hashed again.
    """

    def __init__(self, part: ChunkFile) -> None:
        self._part = part
        self._size = part.map.size
        self._sha = hashlib.sha256()
        self._marks = [self._sha.copy()]
        self._at = 0
        self._ending = False
        self._broken: BaseException | None = None
        self._buffer = memoryview(bytearray(_READ))
        self._thread = threading.Thread(target=self._run, name="store-hash", daemon=True)

    def start(self) -> None:
        self._part.hashed = 0
        self._thread.start()

    @property
    def at(self) -> int:
        """Bytes from the front that are hashed."""
        return self._at

    def digest(self, stop: StopFlag, moved: Callable[[int], None] | None = None) -> str:
        """Wait until all bytes are hashed. Call when the file is whole.

        Raises Stopped, and DiskFull or Unwritable when the file can't be read.
        """
        changed = self._part.changed
        if self._part.offset < self._size:
            raise RuntimeError("bytes are missing")

        def wake() -> None:
            with changed:
                changed.notify_all()

        with stop.calling(wake), changed:
            while self._at < self._size or self._part.rewound is not None:
                stop.check()
                if self._broken is not None:
                    raise self._broken
                if moved is not None:
                    moved(self._at)
                changed.wait(_NAP_S)
            return self._sha.hexdigest()

    def close(self) -> None:
        """End the thread."""
        with self._part.changed:
            self._ending = True
            self._part.changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while (span := self._next()) is not None:
                self._take(*span)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the digest
            with self._part.changed:
                self._broken = error
                self._part.hashed = None
                self._part.changed.notify_all()

    def _next(self) -> tuple[int, int] | None:
        """What to hash next, never over the end of a chunk; waits for it. None = the end."""
        changed, bounds = self._part.changed, self._part.map
        with changed:
            while True:
                if self._ending:
                    return None
                self._rewind()
                stop = min(self._part.offset, self._at + _READ, (self._at // bounds.chunk + 1) * bounds.chunk)
                if stop > self._at:
                    return self._at, stop
                changed.wait()

    def _rewind(self) -> None:
        changed, self._part.rewound = self._part.rewound, None
        if changed is not None and changed < self._at:
            index = changed // self._part.map.chunk
            del self._marks[index + 1 :]
            self._sha, self._at = self._marks[index].copy(), index * self._part.map.chunk
            self._part.hashed = self._at
            self._part.changed.notify_all()

    def _take(self, start: int, stop: int) -> None:
        view = self._buffer[: stop - start]
        with self._part.wrapped():
            n_bytes = chunks.read_at(self._part.handle, view, start)
        sha = self._sha
        sha.update(view)
        with self._part.changed:
            # When bytes changed meanwhile, the next round goes back to the state before them.
            if n_bytes < len(view) and self._part.rewound is None:
                raise self._part.failed(OSError(errno.EIO, "the file is shorter than what has arrived"))
            self._at = self._part.hashed = stop
            if stop % self._part.map.chunk == 0:
                self._marks.append(sha.copy())
            if stop % self._part.map.chunk == 0 or stop == self._size:
                self._part.changed.notify_all()
