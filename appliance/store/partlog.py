"""The log beside a partial file: which bytes of it can be trusted after a kill.

    {"v": 1, "size": ..., "sha256": ..., "chunk": 8388608, "source": ..., "etag": ...}
    INDEX LENGTH XXH3          of chunk INDEX the first LENGTH bytes are here, with this digest

Lines are only added; the last one of an index counts, and one that can't be understood (the last, torn by a
kill) is passed over. Nothing here is made durable by itself: whoever opens the file reads back what the log
says, so a line that came to the disk before its bytes does no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.store import chunks

_VERSION = 1
_LINE = re.compile(r"(\d{1,9}) (\d{1,10}) ([0-9a-f]{16})")
_LIMIT = 256 << 20
"""Bytes of a log that is read at all: far above what 10 TB of lines come to."""
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


def read(path: Path) -> tuple[Head, dict[int, Line]] | None:
    """The head and the last line of each chunk; None when there is no log that can be understood."""
    try:
        if path.stat().st_size > _LIMIT:
            return None
        first, *rest = path.read_text(encoding="ascii", errors="replace").split("\n")
        found = json.loads(first)
        head = Head(
            found["size"], found["sha256"], found["chunk"], _text(found, "source"), _text(found, "etag")
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if found.get("v") != _VERSION or not chunks.is_chunk(head.chunk) or not isinstance(head.size, int):
        return None
    n_chunks, lines = chunks.count(head.size, head.chunk), dict[int, Line]()
    for text in rest:
        match = _LINE.fullmatch(text)
        if match is None:
            continue
        line = Line(int(match[1]), int(match[2]), match[3])
        if line.index < n_chunks and line.length <= min(head.chunk, head.size - line.index * head.chunk):
            lines[line.index] = line
    return head, lines


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

    def start(self, lines: Iterable[Line]) -> None:
        """Write it anew with `lines`, then keep it open for more."""
        self.close()
        write(self._path, self.head, lines)
        self._out = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

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
        if self._out is not None:
            rest = str(line).encode("ascii")
            while rest:
                rest = rest[os.write(self._out, rest) :]

    def close(self) -> None:
        if self._out is not None:
            os.close(self._out)
            self._out = None
