"""What a GGUF header says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from appliance.text import clean_line


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """Stands for an array (or a text) that is too long to be worth decoding, such as a vocabulary."""

    type: str
    """Type of an element: `u8 i8 u16 i16 u32 i32 f32 bool string u64 i64 f64`, or `char` for a long text."""
    count: int


Scalar: TypeAlias = bool | int | float | str
MetaValue: TypeAlias = Scalar | tuple[Scalar, ...] | ArrayInfo


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. `shape` has the row length first, as in ggml; `offset` is from `Header.data_offset`."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata and tensor table of one GGUF file (of one part, when the model is split)."""

    version: int
    metadata: Mapping[str, MetaValue]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    """Where tensor data begins; the bytes before it are all that a header-only stub needs."""
    file_size: int | None
    """Bytes of the whole file; None when only a prefix was given."""

    @property
    def arch(self) -> str:
        """The architecture as llama.cpp names it, `unknown` when the file has none."""
        value = self.metadata.get("general.architecture")
        return clean_line(value, 64) if isinstance(value, str) and value else "unknown"

    @property
    def name(self) -> str | None:
        """The model's own name, cleaned for display."""
        value = self.metadata.get("general.name")
        return clean_line(value, 200) if isinstance(value, str) and value else None
