"""Real headers cut into the parts of a split model, as `gguf-split` does: metadata in the first, tensors in
all, offsets counted from the start of each part's own data."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from appliance.gguf import Header, StubPart, TensorInfo, read_header
from appliance.gguf.reader import opened, read_layout
from appliance.gguf.tensor_types import TENSOR_TYPES
from tests.gguf.writer import I32, entry, tensor, text

_U16 = 2
_KINDS = {known.name: number for number, known in TENSOR_TYPES.items()}


def split_header(path: Path, n_parts: int = 2, stem: str = "model") -> list[StubPart]:
    """The parts of a model file, of which there is nothing but headers."""
    with opened(path) as source:
        header, layout = read_layout(source)
        entries = [source.read_at(start, end - start) for start, end in layout.entries.values()]
    tensors = sorted(header.tensors, key=lambda one: one.offset)
    each = -(-len(tensors) // n_parts)
    parts = []
    for number in range(n_parts):
        mine = tensors[number * each : (number + 1) * each]
        marks = _marks(number, n_parts, len(tensors))
        raw = _file([*entries, *marks] if number == 0 else marks, mine)
        size = len(raw) + sum(one.n_bytes + -one.n_bytes % 32 for one in mine)
        parts.append(StubPart(f"{stem}-{number + 1:05}-of-{n_parts:05}.gguf", raw, size))
    return parts


def _marks(number: int, n_parts: int, n_tensors: int) -> list[bytes]:
    marks = [
        text(key) + struct.pack("<IH", _U16, value)
        for key, value in (("split.no", number), ("split.count", n_parts))
    ]
    return [*marks, entry("split.tensors.count", I32, n_tensors)]


def _file(entries: Iterable[bytes], tensors: list[TensorInfo]) -> bytes:
    entries, rows, offset = list(entries), [], 0
    for one in tensors:
        rows.append(tensor(one.name, one.shape, _KINDS[one.type_name], offset))
        offset += one.n_bytes + -one.n_bytes % 32
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(rows), len(entries)) + b"".join(entries) + b"".join(rows)
    return raw + bytes(-len(raw) % 32)


def header_of(part: StubPart, folder: Path) -> Header:
    """The header of a part that is given as bytes, as a file of its full size has it."""
    assert isinstance(part.source, bytes)
    file = folder / part.name
    with file.open("wb") as out:
        out.write(part.source)
        out.truncate(part.size)
    return read_header(file)
