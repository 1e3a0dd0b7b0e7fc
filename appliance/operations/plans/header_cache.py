"""Headers that were read once, by the SHA-256 of their file: a pin names one file for ever.

    <cache>/headers/<sha256>.gguf-header    a header as `gguf.read_slim` cuts it down, then a mark and a check

The mark says where it came from: from a file that was verified here, or from a server that only says that it
is of that file. What is said is good enough to plan a download; what is here is read from what was verified.
Everything here blocks for a small file, and nothing raises: a cache that can't be used is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import GgufError
from appliance.gguf import Slim, slim_of
from appliance.paths import Paths

log = logging.getLogger("appliance.models")

_ENDING = ".gguf-header"
_PROVEN, _STATED = b"\x01", b"\x00"
_CHECK = 32
MOST_FILES = 512
MOST_BYTES = 64 << 20
_MOST_OF_ONE = 8 << 20
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class HeaderCache:
    """The headers of this user. Any number of processes may use it at the same time."""

    paths: Paths

    @property
    def folder(self) -> Path:
        return self.paths.cache / "headers"

    def get(self, sha256: str, *, proven: bool) -> Slim | None:
        """The header of a file, or None. `proven`: only one that was read from a verified file."""
        file = self._file(sha256)
        if file is None:
            return None
        try:
            if file.stat().st_size > _MOST_OF_ONE + 1 + _CHECK:
                return None
            raw = file.read_bytes()
        except OSError:
            return None
        body, mark, check = raw[: -1 - _CHECK], raw[-1 - _CHECK : -_CHECK], raw[-_CHECK:]
        if hashlib.sha256(body + mark).digest() != check or mark not in (_PROVEN, _STATED):
            self._remove(file)
            return None
        if proven and mark != _PROVEN:
            return None
        try:
            found = slim_of(body)
        except GgufError:
            self._remove(file)
            return None
        with contextlib.suppress(OSError):
            os.utime(file)  # the oldest goes first
        return found

    def put(self, sha256: str, slim: Slim, *, proven: bool) -> None:
        """Keep a header; the oldest ones make room."""
        file = self._file(sha256)
        if file is None or len(slim.prefix) > _MOST_OF_ONE:
            return
        mark = _PROVEN if proven else _STATED
        check = hashlib.sha256(slim.prefix + mark).digest()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(file, slim.prefix + mark + check)
            self._bound()
        except OSError as error:
            log.warning("the header of a model can't be kept: %s", error.strerror)

    def _file(self, sha256: str) -> Path | None:
        return self.folder / (sha256 + _ENDING) if len(sha256) == 64 and set(sha256) <= _HEX else None

    def _remove(self, file: Path) -> None:
        log.warning("%s is broken and is read anew", file)
        with contextlib.suppress(OSError):
            file.unlink()

    def _bound(self) -> None:
        """Keep the newest. Half-written files of killed processes age like all others."""
        with os.scandir(self.folder) as entries:
            found = [(entry.stat(follow_symlinks=False), entry.path) for entry in entries]
        n_bytes = 0
        newest_first = sorted(found, key=lambda pair: pair[0].st_mtime_ns, reverse=True)
        for number, (status, path) in enumerate(newest_first, 1):
            n_bytes += status.st_size
            if number > MOST_FILES or n_bytes > MOST_BYTES:
                os.unlink(path)


def _replace(file: Path, raw: bytes) -> None:
    """Whole or not at all; mode 0600."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as scratch:
            scratch.write(raw)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
