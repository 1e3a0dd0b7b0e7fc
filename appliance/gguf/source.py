"""Where header bytes come from: a file, memory, or (remote.py) a server.

A file is read rather than mapped: a mapped file that another process cuts short would kill this one.
"""

from __future__ import annotations

from typing import BinaryIO, Protocol

_WINDOWS = (64 << 10, 1 << 20)


class Source(Protocol):
    """Random access to the beginning of a GGUF file. Offsets only grow, but for what a window left over."""

    size: int | None
    """Bytes of the whole file, None when not known. A server tells it with its first answer."""
    windows: tuple[int, int]
    """How many bytes to ask for: at first and after a jump, and, growing, while it goes straight on."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer at the end."""
        ...


class BytesSource:
    """A prefix in memory."""

    windows = _WINDOWS

    def __init__(self, prefix: bytes, size: int | None) -> None:
        self._prefix = prefix
        self.size = size

    def read_at(self, offset: int, length: int) -> bytes:
        return self._prefix[offset : offset + length]


class FileSource:
    """An open file."""

    windows = _WINDOWS

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size: int | None = size

    def read_at(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)
