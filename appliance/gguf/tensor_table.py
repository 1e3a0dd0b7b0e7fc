"""Reads and checks the tensor table of a GGUF header."""

from __future__ import annotations

import struct

from appliance.errors import GgufError
from appliance.gguf.cursor import Cursor
from appliance.gguf.header import TensorInfo
from appliance.gguf.tensor_types import REMOVED_TYPES, TENSOR_TYPES
from appliance.text import clean_line

_MAX_TENSORS = 8_192  # the largest models have about 4,000
_MAX_NAME = 63  # GGML_MAX_NAME with its end mark
_MAX_DIMS = 4
_MAX_ELEMENTS = (1 << 63) - 1
_MIN_ENTRY = 8 + 1 + 4 + 8 + 4 + 8
_TENSOR_EFFORT = 48
_REST = {n: struct.Struct(f"<{n}QIQ") for n in range(1, _MAX_DIMS + 1)}
"""The sides, the storage type and the offset of a tensor with `n` dimensions."""


def read_tensors(cursor: Cursor, count: int, alignment: int) -> tuple[TensorInfo, ...]:
    """The table in the file's order. Raises GgufError for what the engine would refuse or misread."""
    if count > _MAX_TENSORS:
        raise _bad(f"the table claims {count} tensors; {_MAX_TENSORS} is the limit")
    cursor.require(count * _MIN_ENTRY)
    cursor.spend(count * _TENSOR_EFFORT)
    found: dict[str, TensorInfo] = {}
    for _ in range(count):
        tensor = _read_one(cursor)
        if tensor.name in found:
            raise _bad(f"the tensor {tensor.name!r} appears twice")
        if tensor.offset % alignment:
            raise _bad(f"the tensor {tensor.name!r} is not aligned to {alignment} bytes")
        found[tensor.name] = tensor
    tensors = tuple(found.values())
    _check_overlap(tensors)
    return tensors


def _read_one(cursor: Cursor) -> TensorInfo:
    length = cursor.u64()
    if not 0 < length <= _MAX_NAME:
        raise _bad(f"a tensor name has {length} bytes; 1 to {_MAX_NAME} are allowed")
    name = cursor.take(length).decode("utf-8", errors="replace")
    n_dims = cursor.u32()
    if not 0 < n_dims <= _MAX_DIMS:
        raise _bad(f"the tensor {name!r} has {n_dims} dimensions; 1 to {_MAX_DIMS} are allowed")
    *sides, kind, offset = cursor.unpack(_REST[n_dims])
    shape = tuple(sides)
    tensor_type = TENSOR_TYPES.get(kind)
    if tensor_type is None:
        raise _unknown_type(name, kind)
    elements = 1
    for side in shape:
        elements *= side
        if not 0 < elements <= _MAX_ELEMENTS:
            raise _bad(f"the tensor {name!r} has the impossible shape {shape}")
    if shape[0] % tensor_type.block_size:
        raise _bad(f"rows of {name!r} have {shape[0]} elements, no multiple of {tensor_type.block_size}")
    n_bytes = elements // tensor_type.block_size * tensor_type.block_bytes
    return TensorInfo(name, shape, tensor_type.name, offset, n_bytes)


def _check_overlap(tensors: tuple[TensorInfo, ...]) -> None:
    end, last = 0, ""
    for tensor in sorted(tensors, key=lambda t: t.offset):
        if tensor.offset < end:
            raise _bad(f"the tensors {last!r} and {tensor.name!r} overlap")
        end, last = tensor.offset + tensor.n_bytes, tensor.name


def _unknown_type(name: str, kind: int) -> GgufError:
    if kind in REMOVED_TYPES:
        return GgufError(
            f"The model uses the storage type {REMOVED_TYPES[kind]}, which engines no longer load.",
            cause=f"the tensor {clean_line(name, 80)!r} has it",
            hint="Take a Q4_0 or Q4_K_M file of the model.",
        )
    return GgufError(
        f"The model uses a storage type that is not known here (number {kind}).",
        cause=f"the tensor {clean_line(name, 80)!r} has it",
        hint="The file is damaged, or newer than this version: update the appliance.",
    )


def _bad(why: str) -> GgufError:
    return GgufError(
        "The tensor table of the GGUF header can't be used.",
        cause=clean_line(why, 300),
        hint="The file is damaged or not a model: fetch it again, or take it from another source.",
    )
