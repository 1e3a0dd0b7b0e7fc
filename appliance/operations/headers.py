"""The header of anything that can be planned, also of what is not here yet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from appliance.gguf import Header, StubPart, merged, read_header, shards_of
from appliance.operations.models import Library, file_or_name
from appliance.planning import Projector
from appliance.store import Stored


@dataclass(frozen=True, slots=True)
class Subject:
    """What is planned: a model with its helpers, of which nothing but the headers has to be here."""

    label: str
    """`id:QUANT`, or what the file is called."""
    header: Header
    """Of the whole model, all parts of a split set."""
    parts: tuple[StubPart, ...]
    """Its files in order, for the engine to measure."""
    sha256: str | None
    """Of the main file, as its pin states it: the name under which lessons are kept."""
    embedding: bool = False
    mmproj: Projector | None = None
    mmproj_part: StubPart | None = None
    draft: Header | None = None
    draft_parts: tuple[StubPart, ...] = ()
    here: bool = True
    """False: the header came from a server and nothing has proven it."""


async def subject_of(library: Library, name: str) -> Subject:
    """What `name` means. Raises UnknownModel, ModelMissing, GgufError, and what the way there raises."""
    file = file_or_name(name)
    if file is not None:
        return await asyncio.to_thread(of_file, file)
    ref = library.resolve(name)
    stored = await library.require(ref)
    return await asyncio.to_thread(of_stored, stored, "embedding" in ref.model.use)


def of_file(file: Path) -> Subject:
    """A file of this computer; of a split set, all parts beside it. Blocks. Raises GgufError."""
    shard = shards_of(file.name)
    files = [file] if shard is None else [file.with_name(name) for name in shard.all]
    header, parts = _read(files)
    return Subject(file.name, header, parts, None)


def of_stored(stored: Stored, embedding: bool) -> Subject:
    """A model that is here. Blocks. Raises GgufError."""
    model = [file for file in stored.files if file.role == "model"]
    header, parts = _read([file.path for file in model])
    return Subject(stored.ref, header, parts, model[0].sha256, embedding)


def _read(files: list[Path]) -> tuple[Header, tuple[StubPart, ...]]:
    headers = [read_header(file) for file in files]
    parts = [
        StubPart(file.name, file, header.file_size or 0, header.data_offset)
        for file, header in zip(files, headers, strict=True)
    ]
    return merged(headers, [file.name for file in files]), tuple(parts)
