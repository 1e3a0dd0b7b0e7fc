"""The log beside a partial file: which bytes of it can be trusted after a kill.

    {"v": 1, "size": ..., "sha256": ..., "chunk": 8388608, "source": ..., "etag": ...}
    INDEX LENGTH XXH3          of chunk INDEX the first LENGTH bytes are here, with this digest

Lines are only added; the last one of an index counts, and one that can't be understood (the last, torn by a
kill) is passed over. Nothing here is made durable by itself: whoever opens the file reads back what the log
says, so a line that came to the disk before its bytes does no harm. A log is written anew before it has more
than 64 lines for each chunk; one that is longer, or lies about that, is not believed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from appliance.store import chunks, regular

_VERSION = 1
_LINE = re.compile(rb"(\d{1,9}) (\d{1,10}) ([0-9a-f]{16})\n?")
_LONGEST = 64
"""Bytes of a line at most, its end included."""
_HEAD = 64 << 10
"""Bytes of the first line at most."""
_PER_CHUNK = 64
_LIMIT = 64 << 20
"""Bytes of a log that is read at all, whatever its first line says of the size of the file."""
EMPTY = "0" * 16
"""Stands where a chunk has no bytes."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line."""

    size: int
    sha256: str
    chunk: int
    source: str | None = None
    """Where the bytes come from, without secrets."""
    etag: str | None = None
    """The strong ETag under which they came."""


@dataclass(frozen=True, slots=True)
class Line:
    index: int
    length: int
    digest: str

    def __str__(self) -> str:
        return f"{self.index} {self.length} {self.digest or EMPTY}\n"


def most_lines(n_chunks: int) -> int:
    """How many lines a log of a file of so many chunks may have."""
    return _PER_CHUNK * (n_chunks + 1)


def read(path: Path, size: int | None = None) -> tuple[Head, dict[int, Line]] | None:
    """The head and the last line of each chunk; None when there is no log that can be understood.

    `size`: of the file that it must be about; None = whatever it says. A longer log than we write is none.
    """
    try:
        with BufferedReader(regular.reader(path)) as data:
            head = _head(data.readline(_HEAD))
            if head is None or size not in (None, head.size):
                return None
            most = most_lines(chunks.count(head.size, head.chunk)) * _LONGEST
            if os.fstat(data.fileno()).st_size > min(_HEAD + most, _LIMIT):
                return None
            return head, {line.index: line for line in _lines(data, head)}
    except OSError:
        return None


def _head(first: bytes) -> Head | None:
    try:
        found = json.loads(first)
        head = Head(
            found["size"], found["sha256"], found["chunk"], _text(found, "source"), _text(found, "etag")
        )
        known = found.get("v") == _VERSION and isinstance(head.sha256, str) and _is_size(head.size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return head if known and chunks.is_chunk(head.chunk) else None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _lines(data: BinaryIO, head: Head) -> Iterator[Line]:
    """One at a time; a line that makes no sense is passed over."""
    n_chunks = chunks.count(head.size, head.chunk)
    while raw := data.readline(_LONGEST):
        match = _LINE.fullmatch(raw)
        if match is None:
            continue
        line = Line(int(match[1]), int(match[2]), match[3].decode())
        if line.index < n_chunks and line.length <= min(head.chunk, head.size - line.index * head.chunk):
            yield line


def write(path: Path, head: Head, lines: Iterable[Line]) -> None:
    """Replace the log by a short one with the same meaning. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    document = {
        "v": _VERSION, "size": head.size, "sha256": head.sha256, "chunk": head.chunk,
        "source": head.source, "etag": head.etag,
    }  # fmt: skip
    try:
        with fresh.open("w", encoding="ascii") as out:
            out.write(json.dumps(document) + "\n")
            out.writelines(str(line) for line in lines if line.length)
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def _text(found: dict[str, object], key: str) -> str | None:
    value = found.get(key)
    return value if isinstance(value, str) else None


class PartLog:
    """The open log of one partial file. Methods raise OSError; the owner's lock keeps them apart."""

    def __init__(self, path: Path, head: Head) -> None:
        self._path = path
        self.head = head
        self._out: int | None = None
        self._last: dict[int, Line] = {}
        """What the file says now: the last line of each chunk."""
        self._count = 0
        """Lines in the file."""

    def start(self, lines: Iterable[Line]) -> None:
        """Write it anew with `lines`, then keep it open for more."""
        self.close()
        self._last = {line.index: line for line in lines if line.length}
        self._count = len(self._last)
        write(self._path, self.head, self._last.values())
        self._out = regular.open_file(self._path, os.O_WRONLY | os.O_APPEND)

    def come_from(self, source: str | None, etag: str | None, lines: Iterable[Line]) -> None:
        """Note another origin."""
        if (source, etag) != (self.head.source, self.head.etag):
            self.head = replace(self.head, source=source, etag=etag)
            if self.is_open:
                self.start(lines)

    @property
    def is_open(self) -> bool:
        return self._out is not None

    def add(self, line: Line) -> None:
        """One more line; a log that has become long is written anew, short."""
        if self._out is None:
            return
        self._last[line.index] = line
        if self._count >= most_lines(chunks.count(self.head.size, self.head.chunk)):
            self.start(list(self._last.values()))
            return
        self._count += 1
        rest = str(line).encode("ascii")
        while rest:
            rest = rest[os.write(self._out, rest) :]

    def close(self) -> None:
        if self._out is not None:
            os.close(self._out)
            self._out = None
