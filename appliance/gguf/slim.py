"""A model's beginning without its vocabulary: all that a plan, or an engine that measures one, looks at.

The tokens, merges and scores are nearly all of a header, and reading them nearly all of the time that an
engine takes to measure a stub (Gemma 3: 1.4 of 1.9 s). llama.cpp takes a model without them
(`tokenizer.ggml.model` = `no_vocab`, `llama_vocab::impl::load`) and counts as many dummy tokens as
`<arch>.vocab_size` says, so that the output's buffers are the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import GgufError
from appliance.gguf.header import ArrayInfo, Header, MetaValue
from appliance.gguf.reader import MAGIC, Layout, opened, read_header_bytes, read_layout
from appliance.gguf.source import Source
from appliance.gguf.stub import StubPart

_TOKENIZER = "tokenizer."
_TOKENS = "tokenizer.ggml.tokens"
_MODEL = "tokenizer.ggml.model"
_WAS = "appliance." + _MODEL
"""Keeps what the file says there; engines pass over keys that they do not know."""
_STRING, _U32 = 8, 4
_MOST = 64 << 20


@dataclass(frozen=True, slots=True)
class Slim:
    """A file's beginning, cut down where it could be."""

    header: Header
    """What the file says; of a cut one, `vocab_size` stands for the vocabulary, and sizes are the stub's."""
    prefix: bytes
    """A valid header; tensor data would follow."""
    n_file: int | None
    """Bytes of the file that it was made of, as its source states them."""

    def part(self, name: str) -> StubPart:
        """What a stub of this file is made of."""
        return StubPart(name, self.prefix, self.header.file_size or 0, self.header.data_offset)


def read_slim(where: Path | str, *, token: str | None = None, env: Mapping[str, str] | None = None) -> Slim:
    """The beginning of a local file, or of one on a server when `where` is an address.

    Blocks, for a server up to a minute. `token` is sent to the host of the address only. Raises GgufError,
    Refused when a server says no, and DownloadError when it can't be read.
    """
    if isinstance(where, Path):
        with opened(where) as source:
            return _slim(source, source.read_at)
    from appliance.gguf import remote  # most callers need no HTTP client

    with remote.opened(where, token, env) as found:
        kept = _Kept(found)
        return _slim(kept, kept.again)


def slim_of(prefix: bytes) -> Slim:
    """What an earlier `prefix` holds. Raises GgufError when it is not exactly one header."""
    header = read_header_bytes(prefix)
    if header.data_offset != len(prefix):
        raise GgufError("The header is not whole.", cause=f"{len(prefix)} bytes of {header.data_offset}.")
    return Slim(_read(header), prefix, None)


def _slim(source: Source, again: Callable[[int, int], bytes]) -> Slim:
    header, layout = read_layout(source)
    n_tokens = _vocabulary(header.metadata)
    if n_tokens is None:
        if header.data_offset > _MOST:
            raise GgufError(
                "The header is too large to be kept.",
                cause=f"It has {header.data_offset >> 20} MiB; {_MOST >> 20} is the limit.",
                hint="Take the model from another source.",
            )
        prefix = again(0, header.data_offset)
    else:
        prefix = _without_vocabulary(header, layout, n_tokens, again)
    found = read_header_bytes(prefix)
    if [(t.name, t.n_bytes) for t in found.tensors] != [(t.name, t.n_bytes) for t in header.tensors]:
        raise GgufError("The header changed while it was read.", hint="Try again.")
    return Slim(_read(found), prefix, header.file_size)


def _vocabulary(metadata: Mapping[str, MetaValue]) -> int | None:
    """How many tokens there are; None when the header must stay as it is.

    A long array that is no tokenizer's may be one that the engine needs.
    """
    tokens = metadata.get(_TOKENS)
    others = [
        key
        for key, value in metadata.items()
        if isinstance(value, ArrayInfo) and not key.startswith(_TOKENIZER)
    ]
    if others or _MODEL not in metadata or not isinstance(metadata.get("general.architecture"), str):
        return None
    if isinstance(tokens, ArrayInfo):
        return tokens.count
    return len(tokens) if isinstance(tokens, tuple) else None


def _without_vocabulary(
    header: Header, layout: Layout, n_tokens: int, again: Callable[[int, int], bytes]
) -> bytes:
    size = f"{header.metadata['general.architecture']}.vocab_size"
    gone = {key for key, value in header.metadata.items() if _is_vocabulary(key, value)} | {
        _MODEL,
        _WAS,
        size,
    }
    kept = [place for key, place in layout.entries.items() if key not in gone]
    entries = [again(start, end - start) for start, end in kept]
    kind = header.metadata[_MODEL]
    entries.append(_string(_MODEL, "no_vocab"))
    entries.append(_string(_WAS, kind if isinstance(kind, str) else ""))
    entries.append(_text(size) + struct.pack("<II", _U32, n_tokens))
    start, end = layout.table
    head = MAGIC + struct.pack("<IQQ", header.version, len(header.tensors), len(entries))
    raw = head + b"".join(entries) + again(start, end - start)
    alignment = header.metadata.get("general.alignment", 32)
    return raw + bytes(-len(raw) % (alignment if isinstance(alignment, int) else 32))


def _is_vocabulary(key: str, value: MetaValue) -> bool:
    return key.startswith(_TOKENIZER) and isinstance(value, (ArrayInfo, tuple))


def _string(key: str, value: str) -> bytes:
    return _text(key) + struct.pack("<I", _STRING) + _text(value)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _read(header: Header) -> Header:
    """What a prefix means. Its size is that of a stub: engines check that the last tensor ends within it."""
    metadata = dict(header.metadata)
    if (kind := metadata.pop(_WAS, None)) is not None:
        metadata[_MODEL] = kind
    end = max((t.offset + t.n_bytes for t in header.tensors), default=0)
    size = header.data_offset + end
    return Header(header.version, metadata, header.tensors, header.data_offset, size)


class _Kept:
    """Remembers what a source gave, since a server would have to be asked again."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pieces: list[tuple[int, bytes]] = []
        self.windows = source.windows
        self.size = source.size

    def read_at(self, offset: int, length: int) -> bytes:
        piece = self._source.read_at(offset, length)
        self.size = self._source.size
        self._pieces.append((offset, piece))
        return piece

    def again(self, offset: int, length: int) -> bytes:
        """Bytes up to where the header ends."""
        found, end = bytearray(), offset + length
        for start, piece in self._pieces:
            at = offset + len(found)
            if start <= at < start + len(piece):
                found += piece[at - start : end - start]
        if len(found) < length:  # a jump left a gap
            found += self._source.read_at(offset + len(found), length - len(found))
        return bytes(found)
