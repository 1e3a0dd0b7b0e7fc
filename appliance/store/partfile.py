"""What has arrived of one file, hashed in the order of its bytes while it is written.

Every method blocks: call them in a thread. After a kill the bytes on disk are hashed again before more are
added, so a digest never covers bytes that were not read back or just written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from appliance.catalog import File
from appliance.errors import ApplianceError
from appliance.store import disk, layout
from appliance.store.threads import StopFlag

_CHUNK = 4 << 20


class Overlong(Exception):
    """More bytes came than the pin allows."""


class PartFile:
    """The `.part` file of `file` in `folder`. Use `open` first and `close` or `finish` last."""

    def __init__(self, folder: Path, file: File) -> None:
        self.file = file
        self.path = layout.part(folder, file)
        self._final = layout.final(folder, file)
        self._state = layout.state(folder, file)
        self._out: BinaryIO | None = None
        self._hash = hashlib.sha256()
        self.offset = 0
        """Bytes on disk, all of them hashed."""

    def open(self, stop: StopFlag, moved: Callable[[int], None]) -> None:
        """Open, or make, the file and hash what it holds. `moved` is told the bytes hashed so far."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            out = self.path.open("r+b" if self.path.exists() else "w+b", buffering=0)
        except OSError as error:
            raise self._failed(error) from None
        self._out, self._hash, self.offset = out, hashlib.sha256(), 0
        while data := out.read(_CHUNK):
            stop.check()
            self._hash.update(data)
            self.offset += len(data)
            moved(self.offset)
        if self.offset > self.file.size:
            raise Overlong

    def feed(self, chunks: Sequence[bytes]) -> None:
        """Append and hash. Raises Overlong, DiskFull or DownloadError; what was written before stays."""
        if self._out is None:
            raise RuntimeError("the part file is not open")
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                try:
                    written = self._out.write(rest)
                except OSError as error:
                    raise self._failed(error) from None
                self._hash.update(rest[:written])
                self.offset += written
                rest = rest[written:]
            if self.offset > self.file.size:
                raise Overlong

    def restart(self) -> None:
        """Forget what has arrived."""
        if self._out is None:
            raise RuntimeError("the part file is not open")
        self._out.seek(0)
        self._out.truncate()
        self._hash, self.offset = hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        """SHA-256 of all bytes so far."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Keep the file for a later resume; drop it when it is empty."""
        if self._out is not None:
            self._out.close()
            self._out = None
            if self.path.exists() and self.path.stat().st_size == 0:
                self.discard()

    def discard(self) -> None:
        """Remove the file and its state."""
        self.path.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)

    def finish(self) -> Path:
        """Give the verified file its final name, safe from a power cut. A failed rename keeps the part."""
        if self._out is None:
            raise RuntimeError("the part file is not open")
        try:
            os.fsync(self._out.fileno())
            self._out.close()
            self._out = None
            os.replace(self.path, self._final)
        except OSError as error:
            raise self._failed(error) from None
        self._state.unlink(missing_ok=True)
        layout.sync_folder(self._final.parent)
        return self._final

    def etag(self, source: str) -> str | None:
        """The strong ETag under which the bytes on disk came from `source`; None when there is none."""
        found = layout.read_json(self._state) or {}
        etag = found.get("etag")
        return etag if isinstance(etag, str) and found.get("source") == source else None

    def remember(self, source: str, etag: str | None) -> None:
        """Note where the bytes come from. `source` holds no secrets."""
        try:
            layout.write_json(self._state, {"source": source, "etag": etag, "sha256": self.file.sha256})
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> ApplianceError:
        return disk.write_error(error, self.path, max(0, self.file.size - self.offset))
