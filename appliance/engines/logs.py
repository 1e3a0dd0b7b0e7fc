"""An engine's log: a bounded ring for `/api/logs`, a rotating file, and the thread that feeds both.

A thread, since the child must never wait for us: neither a busy event loop nor a slow disk may fill its pipe.
"""

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

from appliance.engines.request_text import RequestText
from appliance.engines.values import LogLine
from appliance.paths import Paths
from appliance.text import clean_line

log = logging.getLogger("appliance.engines")

KEPT_LINES = 2_000
FLOOD_LINES_PER_S = 2_000
"""Above this, lines are counted instead of kept: cleaning them would cost the whole process its pace."""
_FILE_LIMIT = 4 << 20
_OLD_FILES = 2
_LINE_LIMIT = 16 << 10
_KEY_LINE = re.compile(r"(api_keys?\s*[:=]\s*)\S.*")


class LogRing:
    """The last lines with sequence numbers that never repeat. Safe to use from any thread."""

    def __init__(self, limit: int = KEPT_LINES) -> None:
        self._lines: deque[LogLine] = deque(maxlen=limit)
        self._lock = threading.Lock()
        self._seq = 0

    def add(self, line: str) -> None:
        with self._lock:
            self._seq += 1
            self._lines.append(LogLine(self._seq, line))

    def lines(self, after_seq: int = 0, limit: int = KEPT_LINES) -> tuple[LogLine, ...]:
        """Up to `limit` lines after `after_seq`, oldest first; older ones than the ring holds are gone."""
        with self._lock:
            newer = [line for line in self._lines if line.seq > after_seq]
        return tuple(newer[: max(0, limit)])

    def last(self, count: int, after_seq: int = 0) -> tuple[str, ...]:
        """The newest `count` lines, of those after `after_seq`: what this engine said, not the one before."""
        with self._lock:
            newest = list(self._lines)[-count:] if count > 0 else []
        return tuple(line.line for line in newest if line.seq > after_seq)

    @property
    def seq(self) -> int:
        """Number of the newest line; 0 when none was written."""
        with self._lock:
            return self._seq


class LogFile:
    """Appends to `path` (0600), keeps `path.1` and `path.2` as older ones. A full disk stops it."""

    def __init__(self, path: Path, limit: int = _FILE_LIMIT) -> None:
        self.path = path
        self._limit = limit
        self._file: BinaryIO | None = None
        self._size = 0

    def write(self, text: str) -> None:
        data = text.encode() + b"\n"
        try:
            if self._file is None or self._size + len(data) > self._limit:
                self._open()
            if self._file is not None:
                self._file.write(data)
                self._size += len(data)
        except OSError:
            self.close()

    def flush(self) -> None:
        try:
            if self._file is not None:
                self._file.flush()
        except OSError:
            self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                log.warning("The engine's log file can't be closed: %s", error.strerror)

    def _open(self) -> None:
        self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size >= self._limit // 2:
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


class LogPump(threading.Thread):
    """Owns the read end of the child's pipe until it is closed by the last writer."""

    def __init__(
        self, fd: int, ring: LogRing, file: LogFile | None, on_line: Callable[[str], None], secret: str = ""
    ) -> None:
        super().__init__(name="engine-log", daemon=True)
        self._fd = fd
        self._ring = ring
        self._file = file
        self._on_line = on_line
        self._secret = secret
        self._request_text = RequestText()
        self._second = 0
        self._in_second = 0
        self._left_out = 0

    def run(self) -> None:
        rest = b""
        with os.fdopen(self._fd, "rb", buffering=0) as pipe:
            while chunk := pipe.read(1 << 16):
                *whole, rest = (rest + chunk).split(b"\n")
                if len(rest) > _LINE_LIMIT:
                    whole, rest = [*whole, rest], b""
                for raw in whole:
                    self._take(raw)
                if self._file is not None:
                    self._file.flush()
        if rest:
            self._take(rest)
        self._report_left_out()
        if self._file is not None:
            self._file.close()

    def _take(self, raw: bytes) -> None:
        now = int(time.monotonic())
        if now != self._second:
            self._report_left_out()
            self._second, self._in_second = now, 0
        self._in_second += 1
        if self._in_second > FLOOD_LINES_PER_S:
            self._left_out += 1
            self._request_text.lost()
            return
        cleaned = clean_line(raw[:_LINE_LIMIT].decode("utf-8", errors="replace"))
        line = self._request_text.without(cleaned) if cleaned else None
        if not line:
            return
        line = _KEY_LINE.sub(r"\1[hidden]", line)
        if self._secret:
            line = line.replace(self._secret, "[hidden]")
        self._on_line(line)
        self._keep(line)

    def _report_left_out(self) -> None:
        if self._left_out:
            count, self._left_out = self._left_out, 0
            self._keep(f"… {count} lines left out: the engine wrote more than {FLOOD_LINES_PER_S} a second")

    def _keep(self, line: str) -> None:
        self._ring.add(line)
        if self._file is not None:
            self._file.write(line)
