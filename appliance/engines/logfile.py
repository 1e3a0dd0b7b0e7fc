"""An engine's log on disk: written by a thread of its own, so that a slow disk holds up nobody."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from appliance.paths import Paths

log = logging.getLogger("appliance.engines")

_FILE_LIMIT = 4 << 20
_OLD_FILES = 2
WAITING_LINES = 4_000
"""That may wait for the disk; further ones are counted and left out."""
_IDLE_S = 1.0
"""The thread ends, and the file is closed, when nothing was written for so long."""
_RETRY_S = 60.0
"""A file that can't be written is tried again so much later."""


class LogFile:
    """Appends to `path` (0600), keeps `path.1` and `path.2` as older ones. A full disk costs lines only.

    `write` never waits and may be called from any thread.
    """

    def __init__(self, path: Path, limit: int = _FILE_LIMIT) -> None:
        self.path = path
        self._limit = limit
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._left_out = 0
        self._closing = False
        self._file: BinaryIO | None = None
        self._size = 0
        self._broken_until = 0.0

    def write(self, text: str) -> None:
        """Append a line, some time soon."""
        with self._changed:
            if len(self._waiting) >= WAITING_LINES:
                self._left_out += 1
                return
            if self._left_out:
                note = f"… {self._left_out} lines left out: the disk was too slow"
                self._waiting.append(note.encode() + b"\n")
                self._left_out = 0
            self._waiting.append(text.encode() + b"\n")
            self._closing = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="engine-log-file", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, limit_s: float = 2.0) -> None:
        """Wait until all is written and the file is closed, but no longer than `limit_s`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._until(lambda: self._thread is None, limit_s)

    def _run(self) -> None:
        while (lines := self._next()) is not None:
            self._append(lines)

    def _next(self) -> list[bytes] | None:
        """All lines that wait; None when there is nothing to do any more, and the file is closed."""
        with self._changed:
            self._until(lambda: bool(self._waiting) or self._closing, _IDLE_S)
            lines = list(self._waiting)
            self._waiting.clear()
            if lines:
                return lines
            self._shut()
            self._thread = None
            self._changed.notify_all()
            return None

    def _until(self, reached: Callable[[], bool], limit_s: float) -> None:
        """Wait for a change that brings it about; no longer than the limit. The lock is held."""
        end = time.monotonic() + limit_s
        while not reached() and (left_s := end - time.monotonic()) > 0:
            self._changed.wait(left_s)

    def _append(self, lines: list[bytes]) -> None:
        if time.monotonic() < self._broken_until:
            return
        try:
            for line in lines:
                self._append_line(line)
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            log.warning("The engine's log file can't be written: %s", error.strerror)
            self._broken_until = time.monotonic() + _RETRY_S
            self._shut()

    def _append_line(self, line: bytes) -> None:
        if self._file is None or self._size + len(line) > self._limit:
            self._open(len(line))
        if self._file is not None:
            self._file.write(line)
            self._size += len(line)

    def _shut(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                log.warning("The engine's log file can't be closed: %s", error.strerror)

    def _open(self, coming: int) -> None:
        """The file that `coming` bytes still fit into; a full one becomes an older one."""
        self._shut()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size + coming > self._limit:
            for number in range(_OLD_FILES, 0, -1):
                older = self.path.with_name(f"{self.path.name}.{number}")
                newer = self.path if number == 1 else self.path.with_name(f"{self.path.name}.{number - 1}")
                if newer.exists():
                    newer.replace(older)
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(fd, "ab")
        self._size = self.path.stat().st_size


def file_of(paths: Paths, model_id: str) -> LogFile:
    """The log file of the engine that serves this model."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", model_id)[:80]
    return LogFile(paths.logs / f"engine-{name}.log")
