"""The engines' logs: a bounded ring for each, a book of all rings for `/api/logs`, and the thread that reads.

A thread, since the child must never wait for us: neither a busy event loop nor a slow disk may fill its pipe.
The file has a thread of its own (logfile.py).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import chain, islice

from appliance.engines.logfile import LogFile, file_of
from appliance.engines.request_text import RequestText
from appliance.engines.values import LogLine
from appliance.text import clean_line

__all__ = ["LogBook", "LogFile", "LogPump", "LogRing", "file_of"]

OWN = "[appliance] "
"""How our own lines begin, between those of the engine."""
KEPT_RINGS = 16
KEPT_LINES = 2_000
FLOOD_LINES_PER_S = 2_000
"""Above this, lines are counted instead of kept: cleaning them would cost the whole process its pace."""
_LINE_LIMIT = 16 << 10
_KEY_LINE = re.compile(r"(api_keys?\s*[:=]\s*)\S.*")


class LogRing:
    """The last lines with sequence numbers that never repeat. Safe to use from any thread."""

    def __init__(
        self, limit: int = KEPT_LINES, *, engine: str | None = None, numbers: Numbers | None = None
    ) -> None:
        """`numbers`: shared with other rings, so that their lines can be told in order."""
        self._lines: deque[LogLine] = deque(maxlen=limit)
        self._numbers = numbers or Numbers()
        self._engine = engine
        self._seq = 0
        self.written = 0
        """Lines so far, those that the ring forgot included."""

    def add(self, line: str) -> None:
        with self._numbers.lock:
            self._numbers.last += 1
            self._seq = self._numbers.last
            self.written += 1
            self._lines.append(LogLine(self._seq, line, self._engine))

    def lines(self, after_seq: int = 0, limit: int = KEPT_LINES) -> tuple[LogLine, ...]:
        """Up to `limit` lines after `after_seq`, oldest first; older ones than the ring holds are gone."""
        with self._numbers.lock:
            newer = [line for line in self._lines if line.seq > after_seq]
        return tuple(newer[: max(0, limit)])

    def last(self, count: int, after_seq: int = 0) -> tuple[str, ...]:
        """The newest `count` lines, of those after `after_seq`: what this engine said, not the one before,
        and not what we said of it."""
        with self._numbers.lock:
            said = (line for line in reversed(self._lines) if not line.line.startswith(OWN))
            newest = list(islice(said, max(0, count)))
        return tuple(line.line for line in reversed(newest) if line.seq > after_seq)

    @property
    def seq(self) -> int:
        """Number of the newest line; 0 when none was written."""
        with self._numbers.lock:
            return self._seq


class Numbers:
    """The next number of a line, over all rings that share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last = 0


class LogBook:
    """The rings of all engines. A flood of one takes no line from another."""

    def __init__(self, limit: int = KEPT_LINES) -> None:
        self._limit = limit
        self._numbers = Numbers()
        self._rings: dict[str, LogRing] = {}

    def ring(self, engine: str) -> LogRing:
        """The ring of this engine (the model's ref), which stays while the book does.

        The one that was silent for longest goes when there are more than KEPT_RINGS; its file stays.
        """
        found = self._rings.get(engine)
        if found is None:
            if len(self._rings) >= KEPT_RINGS:
                del self._rings[min(self._rings, key=lambda name: self._rings[name].seq)]
            found = self._rings[engine] = LogRing(self._limit, engine=engine, numbers=self._numbers)
        return found

    @property
    def engines(self) -> tuple[str, ...]:
        """Whose lines are here."""
        return tuple(name for name, ring in self._rings.items() if ring.written)

    def lines(
        self, after_seq: int = 0, limit: int = KEPT_LINES, engine: str | None = None
    ) -> tuple[LogLine, ...]:
        """Up to `limit` lines after `after_seq`, oldest first, of one engine or of all."""
        rings = [ring for name, ring in list(self._rings.items()) if engine in (None, name)]
        found = [ring.lines(after_seq, self._limit) for ring in rings]
        return tuple(sorted(chain(*found), key=lambda line: line.seq)[: max(0, limit)])

    def newest(self, count: int, engine: str | None = None) -> tuple[LogLine, ...]:
        """The last `count` lines, oldest first."""
        return self.lines(0, self._limit * max(1, len(self._rings)), engine)[-count:] if count > 0 else ()


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
