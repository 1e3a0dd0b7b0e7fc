"""Split models: one model in several files, NAME-00001-of-00005.gguf and so on.

The first part holds the metadata; each part says which one it is (`split.no`, from 0) and how many there are
(`split.count`). Source: tools/gguf-split and src/llama-model-loader.cpp of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from appliance.errors import GgufError
from appliance.gguf.header import Header, TensorInfo
from appliance.text import clean_line

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")


@dataclass(frozen=True, slots=True)
class ShardName:
    """What the name of one part says. `number` counts from 1; `stem` is what all parts begin with."""

    stem: str
    number: int
    count: int

    @property
    def all(self) -> tuple[str, ...]:
        """The names of all parts, in order."""
        return tuple(f"{self.stem}-{n:05}-of-{self.count:05}.gguf" for n in range(1, self.count + 1))


def shards_of(name: str) -> ShardName | None:
    """What a file's name (with or without folders) says; None when it names no part of a split model."""
    found = _NAME.fullmatch(PurePosixPath(name).name)
    if found is None:
        return None
    shard = ShardName(found["stem"], int(found["number"]), int(found["count"]))
    return shard if 1 <= shard.number <= shard.count else None


def check_set(headers: Sequence[Header], names: Sequence[str]) -> None:
    """Raise GgufError unless these files, each with its name, are one whole model, split or not.

    The order does not matter. Only names and headers are looked at.
    """
    named = [shards_of(name) for name in names]
    if len(headers) != len(names) or not headers:
        raise ValueError("each header needs its name")
    if len(headers) == 1 and named[0] is None:
        count = _split(headers[0], "count", 1)
        if count > 1:
            raise _incomplete(names[0], f"It is one of {count} parts, and its name does not say which.")
        return
    _check_names(named, names)
    for header, shard, name in zip(headers, named, names, strict=True):
        if shard is not None:
            _check_part(header, shard, name)
    _check_tensors(headers, names[0])


def merged(headers: Sequence[Header], names: Sequence[str]) -> Header:
    """One header for a whole model, given those of its files in any order: all tensors, metadata of part 1.

    Offsets and size are those of the files laid one behind the other. Raises GgufError as `check_set` does.
    """
    check_set(headers, names)
    if len(headers) == 1:
        return headers[0]
    parts = [header for _, header in sorted(zip(map(_number, names), headers, strict=True), key=_first)]
    start, tensors = 0, list[TensorInfo]()
    for part in parts:
        shift = start + part.data_offset - parts[0].data_offset
        tensors += [replace(tensor, offset=tensor.offset + shift) for tensor in part.tensors]
        start += _size_of(part)
    whole = None if any(part.file_size is None for part in parts) else start
    return replace(parts[0], tensors=tuple(tensors), file_size=whole)


def _number(name: str) -> int:
    shard = shards_of(name)
    return 0 if shard is None else shard.number


def _first(pair: tuple[int, Header]) -> int:
    return pair[0]


def _size_of(header: Header) -> int:
    if header.file_size is not None:
        return header.file_size
    return header.data_offset + max((t.offset + t.n_bytes for t in header.tensors), default=0)


def _check_names(named: Sequence[ShardName | None], names: Sequence[str]) -> None:
    first = named[0]
    if first is None or any(s is None or (s.stem, s.count) != (first.stem, first.count) for s in named):
        raise _incomplete(names[0], "The files are not parts of one and the same model.")
    here = {shard.number for shard in named if shard is not None}
    missing = [name for number, name in enumerate(first.all, 1) if number not in here]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise _incomplete(names[0], f"{clean_line(missing[0], 120)}{more} is missing.")
    if len(named) != first.count:
        raise _incomplete(names[0], "A part is there twice.")


def _check_part(header: Header, shard: ShardName, name: str) -> None:
    number, count = _split(header, "no", 0) + 1, max(1, _split(header, "count", 1))
    if (number, count) != (shard.number, shard.count):
        raise _incomplete(
            name, f"By its header it is part {number} of {count}: the file was renamed, or is another one."
        )


def _check_tensors(headers: Sequence[Header], name: str) -> None:
    found = [tensor.name for header in headers for tensor in header.tensors]
    if len(set(found)) != len(found):
        raise _incomplete(name, "A tensor is in two of its parts.")
    stated = {_split(header, "tensors.count", len(found)) for header in headers}
    if stated != {len(found)}:
        raise _incomplete(name, f"Its parts hold {len(found)} tensors and state {max(stated)}.")


def _split(header: Header, key: str, default: int) -> int:
    value = header.metadata.get(f"split.{key}", default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _incomplete("The model", f"split.{key} in its header is no whole number.")
    return value


def _incomplete(name: str, why: str) -> GgufError:
    return GgufError(
        f"{clean_line(PurePosixPath(name).name, 200)} is not a whole model.",
        cause=why,
        hint="A split model works only with all of its parts, side by side under their own names.",
    )
