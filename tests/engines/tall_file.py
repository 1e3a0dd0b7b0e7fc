"""A larger model made from a real one: its blocks over and over, each with its own copy of the bytes on disk.

It loads and answers (nonsense); quants, vocabulary and tensor shapes are those of the real file.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import BinaryIO

from appliance.gguf.header import Header, TensorInfo
from appliance.gguf.reader import Layout, opened, read_layout
from appliance.gguf.tensor_types import TENSOR_TYPES
from tests.gguf.writer import U32, entry, gguf, tensor

MOST_BLOCKS = 500
"""llama.cpp takes 512 (LLAMA_MAX_LAYERS)."""
_KINDS = {kind.name: number for number, kind in TENSOR_TYPES.items()}


def write_tall(source: Path, out: Path, n_bytes: int) -> Path:
    """Write a model of about `n_bytes`, as far as `MOST_BLOCKS` allow."""
    with opened(source) as file:
        header, layout = read_layout(file)
        kept = _entries(header, layout, source)
    blocks = header.metadata[f"{header.arch}.block_count"]
    assert isinstance(blocks, int)
    own = sum(t.n_bytes for t in header.tensors if t.name.startswith("blk."))
    rest = sum(t.n_bytes for t in header.tensors) - own
    times = max(1, min(MOST_BLOCKS // blocks, math.ceil((n_bytes - rest) / own)))
    wanted = [t for t in header.tensors if not t.name.startswith("blk.")]
    wanted += [_again(t, turn * blocks) for turn in range(times) for t in _blocks(header)]
    kept.append(entry(f"{header.arch}.block_count", U32, blocks * times))
    _write(out, source, header, kept, wanted)
    return out


def _blocks(header: Header) -> list[TensorInfo]:
    return [t for t in header.tensors if t.name.startswith("blk.")]


def _again(one: TensorInfo, ahead: int) -> TensorInfo:
    _, number, rest = one.name.split(".", 2)
    name = f"blk.{int(number) + ahead}.{rest}"
    return TensorInfo(name, one.shape, one.type_name, one.offset, one.n_bytes)


def _entries(header: Header, layout: Layout, source: Path) -> list[bytes]:
    raw = source.read_bytes()[: header.data_offset]
    size = f"{header.arch}.block_count"
    return [raw[start:end] for key, (start, end) in layout.entries.items() if key != size]


def _write(out: Path, source: Path, header: Header, kept: list[bytes], wanted: list[TensorInfo]) -> None:
    rows, at = [], 0
    for one in wanted:
        rows.append(tensor(one.name, one.shape, _KINDS[one.type_name], at))
        at += one.n_bytes + -one.n_bytes % 32
    with out.open("wb") as file, source.open("rb") as data:
        file.write(gguf(kept, rows))
        for one in wanted:
            _copy(data, header.data_offset + one.offset, one.n_bytes, file)
            file.write(bytes(-one.n_bytes % 32))


def _copy(data: BinaryIO, offset: int, n_bytes: int, out: BinaryIO) -> None:
    data.seek(offset)
    out.write(data.read(n_bytes))
