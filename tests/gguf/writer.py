"""Writes small GGUF headers for tests, byte by byte, so that they can be wrong on purpose."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
_PACK = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q"}


def text(value: str | bytes) -> bytes:
    """A length and the bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind: int, value: object) -> bytes:
    """The bytes of one value."""
    return text(str(value)) if kind == STRING else struct.pack(_PACK[kind], value)


def entry(key: str, kind: int, value: object) -> bytes:
    """One metadata entry."""
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def array(key: str, kind: int, values: Iterable[object]) -> bytes:
    """One metadata entry that is an array."""
    items = [scalar(kind, v) for v in values]
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(items)


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    """One row of the tensor table."""
    sides = struct.pack(f"<{len(shape)}Q", *shape)
    return text(name) + struct.pack("<I", len(shape)) + sides + struct.pack("<IQ", kind, offset)


def gguf(
    entries: Iterable[bytes] = (),
    tensors: Iterable[bytes] = (),
    *,
    version: int = 3,
    n_tensors: int | None = None,
    n_keys: int | None = None,
    data: int = 0,
) -> bytes:
    """A whole file: header, padding to 32, and `data` zero bytes."""
    entries, tensors = list(entries), list(tensors)
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(entries) if n_keys is None else n_keys,
    )
    raw = head + b"".join(entries) + b"".join(tensors)
    return raw + b"\0" * (-len(raw) % 32) + b"\0" * data


def model(arch: str, values: Mapping[str, object]) -> bytes:
    """A header without tensors whose `values` are `<arch>.<key>`: ints, bools and lists of them."""
    entries = [entry("general.architecture", STRING, arch)]
    for key, value in values.items():
        name = f"{arch}.{key}"
        if isinstance(value, list):
            kind = BOOL if isinstance(value[0], bool) else I32
            entries.append(array(name, kind, value))
        else:
            entries.append(entry(name, U32, value))
    return gguf(entries)
