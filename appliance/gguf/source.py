"""Where header bytes come from, and a cursor that reads them through a small window.

The window keeps memory bounded however long the header is, and a file is read rather than mapped: a mapped
file that another process cuts short would kill this one.
"""

from __future__ import annotations

import re
import struct
from typing import BinaryIO, Protocol

from appliance.errors import GgufError

WINDOW = 1 << 20
"""Bytes asked for at a time: one system call, or one range request."""


class Source(Protocol):
    """Random access to the beginning of a GGUF file."""

    size: int | None
    """Bytes of the whole file, None when not known."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer at the end."""
        ...


class BytesSource:
    """A prefix in memory."""

    def __init__(self, prefix: bytes, size: int | None) -> None:
        self._prefix = prefix
        self.size = size

    def read_at(self, offset: int, length: int) -> bytes:
        return self._prefix[offset : offset + length]


class FileSource:
    """An open file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size: int | None = size

    def read_at(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)


_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_CHUNK = 64
_SHORT = 48  # nearly all tokens are shorter; a chunk with a longer one takes the slow way
_LENGTHS = (
    *range(3, 14),
    1,
    2,
    0,
    *range(14, _SHORT),
)  # the usual lengths first: alternatives are tried in order
_CHUNK_OF_SHORT_STRINGS = re.compile(
    b"(?s)(?:"
    + b"|".join(re.escape(bytes([n])) + rb"\x00" * 7 + b".{%d}" % n for n in _LENGTHS)
    + b"){%d}+" % _CHUNK
)
"""64 strings, each a little-endian u64 length below 48 and its bytes: walked in C, faster than a loop."""


class Cursor:
    """A position in a source. Every read is checked; running off the end raises GgufError."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._window = source.read_at(0, WINDOW)
        self._base = 0
        self._at = 0

    @property
    def position(self) -> int:
        """Absolute offset of the next byte."""
        return self._base + self._at

    @property
    def remaining(self) -> int | None:
        """Bytes left in the whole file, None when its size is not known."""
        return None if self._source.size is None else self._source.size - self.position

    def u32(self) -> int:
        start = self._need(4)
        value: int = _U32.unpack_from(self._window, start)[0]
        return value

    def u64(self) -> int:
        start = self._need(8)
        value: int = _U64.unpack_from(self._window, start)[0]
        return value

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        start = self._need(length)
        return self._window[start : start + length]

    def skip(self, length: int) -> None:
        """Go on without reading. Raises GgufError when the file ends before."""
        left = self.remaining
        if left is not None and length > left:
            raise self.truncated(length)
        self._at += length

    def skip_strings(self, count: int) -> None:
        """Pass `count` strings without decoding them."""
        while count:
            count -= self._skip_in_window(count)
            if count:
                self.skip(self.u64())  # the one that crosses the window's end
                count -= 1

    def _skip_in_window(self, count: int) -> int:
        """Pass strings that lie wholly in the window; returns how many."""
        window, at = self._window, self._at
        match, unpack, size = _CHUNK_OF_SHORT_STRINGS.match, _U64.unpack_from, len(window)
        done = 0
        while count - done >= _CHUNK:
            found = match(window, at)
            if found is None:
                break
            at = found.end()
            done += _CHUNK
        for _ in range(min(_CHUNK, count - done)):
            if at + 8 > size:
                break
            end = at + 8 + unpack(window, at)[0]
            if end > size:
                break
            at = end
            done += 1
        self._at = at
        return done

    def _need(self, length: int) -> int:
        """Make `length` bytes available, step over them, and return where they start in the window."""
        if self._at + length > len(self._window):
            self._base, self._at = self._base + self._at, 0
            self._window = self._source.read_at(self._base, max(length, WINDOW))
            if len(self._window) < length:
                raise self.truncated(length)
        start = self._at
        self._at += length
        return start

    def truncated(self, wanted: int) -> GgufError:
        """The error for a header that ends too early."""
        return GgufError(
            "The GGUF header is cut off.",
            cause=f"{wanted} more bytes should follow byte {self.position}, and the file ends before.",
            hint="The file is incomplete or damaged: check it, or fetch it again.",
        )
