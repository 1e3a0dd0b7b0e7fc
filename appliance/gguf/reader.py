"""Reads a GGUF header (version 2 and 3, little endian) without trusting it.

Layout: ggml/docs/gguf.md and ggml/src/gguf.cpp. All counts and lengths in the file are checked against what
is left of the file and against limits far above any real model, before anything is allocated or walked. A
hostile header ends in a GgufError within a tenth of a second and 50 MiB.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import GgufError
from appliance.gguf.cursor import Cursor, bad
from appliance.gguf.header import ArrayInfo, Header, MetaValue, Scalar
from appliance.gguf.source import BytesSource, FileSource, Source
from appliance.gguf.tensor_table import read_tensors
from appliance.text import clean_line

MAGIC = b"GGUF"
LONG_ARRAY = 1024
"""Longer arrays are not decoded. Per-layer arrays stay below (llama.cpp allows 512 layers)."""

_MAX_KEYS = 8_192
_MAX_KEY_BYTES = 65_535  # the format's own limit
_MAX_DECODED_TEXT = 4 << 20
_MAX_TEXT = 1 << 20  # a longer one (an embedded tokenizer.json) is passed over
_MAX_DECODED_ELEMENTS = 65_536
_MAX_ALIGNMENT = 1 << 20
_KEY_EFFORT, _TEXT_EFFORT = 40, 20
_TEXT_BYTES = 8  # of a text that is decoded cost one unit: when it is no UTF-8, each byte takes 10 ns

_SCALARS: dict[int, tuple[str, str]] = {
    0: ("u8", "B"), 1: ("i8", "b"), 2: ("u16", "H"), 3: ("i16", "h"), 4: ("u32", "I"), 5: ("i32", "i"),
    6: ("f32", "f"), 7: ("bool", "?"), 10: ("u64", "Q"), 11: ("i64", "q"), 12: ("f64", "d"),
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_MIN_KEY_BYTES = 8 + 4 + 1  # an empty key, a type and a value of one byte


def read_header(where: Path | str, *, token: str | None = None) -> Header:
    """The header of a local file, or of one on a server when `where` is an http or https address.

    Blocks, for a server up to a minute. `token` is sent to the host of the address only. Raises GgufError,
    which says what is wrong with the file, and DownloadError when a server can't be read.
    """
    if isinstance(where, str) and where.lower().startswith(("http://", "https://")):
        from appliance.gguf import remote  # most callers need no HTTP client

        with remote.opened(where, token) as source:
            return read_source(source)
    with opened(Path(where)) as file:
        return read_source(file)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Source]:
    """A local file as a source. Raises GgufError when it, or something of it, can't be read."""
    try:
        file = open(path, "rb", buffering=0, opener=_not_waiting)  # noqa: SIM115 - closed by the next statement
    except (OSError, ValueError) as error:
        raise _unreadable(path, getattr(error, "strerror", None)) from error
    with file:
        try:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _unreadable(path, "It is no regular file.")
            yield FileSource(file, status.st_size)
        except OSError as error:
            raise _unreadable(path, error.strerror) from error


def _not_waiting(path: str, flags: int) -> int:
    """A FIFO would block for ever when it is opened."""
    return os.open(path, flags | os.O_NONBLOCK)


def _unreadable(path: Path, cause: str | None) -> GgufError:
    return GgufError(
        f"{clean_line(str(path))} can't be read.", cause=cause, hint="Check the path and its permissions."
    )


def read_header_bytes(prefix: bytes, file_size: int | None = None) -> Header:
    """The header from the first bytes of a file. Raises GgufError, also when `prefix` ends inside the header.

    `file_size` is the size of the whole file; without it, tensors can't be checked against the end.
    """
    return read_source(BytesSource(prefix, file_size))


def read_source(source: Source) -> Header:
    """The header from any source. Raises GgufError, and what the source raises."""
    return read_layout(source)[0]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the pieces of a header lie, as (first byte, byte behind)."""

    entries: Mapping[str, tuple[int, int]]
    """By key, in the file's order."""
    table: tuple[int, int]
    """The rows of the tensor table."""


def read_layout(source: Source) -> tuple[Header, Layout]:
    """The header, and where its pieces lie. Raises as `read_source` does."""
    cursor = Cursor(source)
    version = _version(cursor)
    n_tensors, n_keys = cursor.u64(), cursor.u64()
    if n_keys > _MAX_KEYS:
        raise bad(f"it claims {n_keys} metadata entries; {_MAX_KEYS} is the limit")
    cursor.require(n_keys * _MIN_KEY_BYTES)
    read = _Metadata(cursor)
    metadata = read.read(n_keys)
    alignment, table = _alignment(metadata), cursor.position
    tensors = read_tensors(cursor, n_tensors, alignment)
    layout = Layout(read.places, (table, cursor.position))
    data_offset = -(-cursor.position // alignment) * alignment
    end = max((t.offset + t.n_bytes for t in tensors), default=0)
    if tensors and source.size is not None and data_offset + end > source.size:
        raise GgufError(
            "The GGUF file is shorter than its own table says.",
            cause=f"tensors end at byte {data_offset + end}, the file has {source.size}",
            hint="The file is incomplete or damaged: check it, or fetch it again.",
        )
    return Header(version, metadata, tensors, data_offset, source.size), layout


def _version(cursor: Cursor) -> int:
    left = cursor.remaining
    if left is not None and left < len(MAGIC):
        raise _not_gguf(f"it has only {left} byte{'s' * (left != 1)}" if left else "it is empty")
    magic = cursor.take(len(MAGIC))
    if magic == b"FUGG":
        raise _big_endian()
    if magic != MAGIC:
        start = repr(magic.decode()) if magic.isascii() and magic.decode().isprintable() else magic.hex(" ")
        raise _not_gguf(f"it starts with {start} instead of 'GGUF' ({MAGIC.hex(' ')})")
    version = cursor.u32()
    if version in (2, 3):
        return version
    if version == 1:
        raise GgufError(
            "This GGUF file has version 1, which no current engine loads.",
            cause="version 1 was replaced in August 2023",
            hint="Take a newer conversion of the model.",
        )
    if version and version & 0xFFFF == 0:
        raise _big_endian()
    raise GgufError(
        f"This GGUF file has the unknown version {version}.",
        cause="versions 2 and 3 are known",
        hint="Take a conversion of the model for a current llama.cpp, or update the appliance.",
    )


def _not_gguf(why: str) -> GgufError:
    return GgufError(
        "This is not a GGUF file.",
        cause=why,
        hint="Another format or a web page was saved in its place: check the file, or fetch it again.",
    )


def _big_endian() -> GgufError:
    return GgufError(
        "This GGUF file is big endian.",
        cause="it was converted for another kind of machine (s390x, POWER)",
        hint="Take the usual little-endian file of the model.",
    )


def _alignment(metadata: dict[str, MetaValue]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad("general.alignment is not a whole number")
    if not 0 < value <= _MAX_ALIGNMENT or value & (value - 1):
        raise bad(f"general.alignment is {value}, not a power of two up to {_MAX_ALIGNMENT}")
    return value


class _Metadata:
    """Reads the key-value section, with one budget for everything that is decoded."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._text_left = _MAX_DECODED_TEXT
        self._elements_left = _MAX_DECODED_ELEMENTS
        self.places: dict[str, tuple[int, int]] = {}

    def read(self, count: int) -> dict[str, MetaValue]:
        found: dict[str, MetaValue] = {}
        self._cursor.spend(count * _KEY_EFFORT)
        end = self._cursor.position
        for _ in range(count):
            start, key = end, self._text(self._cursor.u64(), _MAX_KEY_BYTES)
            if key in found:
                raise bad(f"the key {key!r} appears twice")
            found[key] = self._value(key, self._cursor.u32())
            end = self._cursor.position
            self.places[key] = start, end
        return found

    def _value(self, key: str, kind: int) -> MetaValue:
        if kind == _ARRAY:
            return self._array(key)
        if kind == _STRING:
            length = self._cursor.u64()
            if length > _MAX_TEXT:
                self._cursor.skip(length)
                return ArrayInfo("char", length)
            return self._text(length, _MAX_TEXT)
        if kind not in _SCALARS:
            raise bad(f"{key!r} has the unknown type {kind}")
        return self._scalars(kind, 1)[0]

    def _array(self, key: str) -> MetaValue:
        kind, count = self._cursor.u32(), self._cursor.u64()
        if kind == _ARRAY:
            raise bad(f"{key!r} is an array of arrays, which no engine loads")
        if kind != _STRING and kind not in _SCALARS:
            raise bad(f"{key!r} is an array of the unknown type {kind}")
        width = 8 if kind == _STRING else struct.calcsize("<" + _SCALARS[kind][1])
        self._cursor.require(count * width)
        if count > LONG_ARRAY:
            return self._long_array(key, kind, count, width)
        self._elements_left -= count
        if self._elements_left < 0:
            raise bad(f"its short arrays hold more than {_MAX_DECODED_ELEMENTS} values")
        if kind == _STRING:
            self._cursor.spend(count * _TEXT_EFFORT)
            return tuple(self._text(self._cursor.u64(), _MAX_TEXT) for _ in range(count))
        return self._scalars(kind, count)

    def _long_array(self, key: str, kind: int, count: int, width: int) -> ArrayInfo:
        if kind != _STRING:
            self._cursor.skip(count * width)
            return ArrayInfo(_SCALARS[kind][0], count)
        self._cursor.skip_strings(count)
        return ArrayInfo("string", count)

    def _scalars(self, kind: int, count: int) -> tuple[Scalar, ...]:
        layout = struct.Struct(f"<{count}{_SCALARS[kind][1]}")
        return layout.unpack(self._cursor.take(layout.size))

    def _text(self, length: int, limit: int) -> str:
        if length > limit:
            raise bad(f"a text of {length} bytes stands where at most {limit} may be")
        self._cursor.spend(length // _TEXT_BYTES)
        self._text_left -= length
        if self._text_left < 0:
            raise bad(f"its texts are longer than {_MAX_DECODED_TEXT} bytes")
        return self._cursor.take(length).decode("utf-8", errors="replace")
