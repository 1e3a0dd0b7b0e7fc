"""What is planned, made of headers; and the one of a file of this computer, which takes nothing further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.errors import GgufError
from appliance.gguf import Header, Slim, StubPart, merged, read_slim, shards_of
from appliance.operations.use import PLAIN, Mode, mode_of, use_of
from appliance.planning import Lora, Projector, Reason
from appliance.planning.memory.extras import projector_of
from appliance.planning.memory.lora import lora_of
from appliance.text import clean_line

if TYPE_CHECKING:
    from appliance.catalog import Model, Role


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a model, whose header was read."""

    name: str
    role: Role
    slim: Slim

    @property
    def stub(self) -> StubPart:
        return self.slim.part(self.name)


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
    """Of the main file, as its pin states it: the name under which lessons are kept. None: it has no pin."""
    mode: Mode = PLAIN
    """How it is started for what it is for."""
    ref: str | None = None
    """`id:QUANT` of the catalog; None: no catalog lists it."""
    mmproj: Projector | None = None
    draft: Header | None = None
    draft_parts: tuple[StubPart, ...] = ()
    adapters: tuple[Lora, ...] = ()
    notes: tuple[Reason, ...] = ()
    """What the plan has to say of it."""
    here: bool = True
    """False: the header came from a server, or from a file that nobody verified."""

    @property
    def embedding(self) -> bool:
        """Whether it is for embeddings."""
        return self.mode.embedding

    @property
    def key(self) -> str | None:
        """Under which measurements are kept: one of an unproven header says nothing of the file itself."""
        return self.sha256 if self.here or self.sha256 is None else f"stated {self.sha256}"


def of_file(file: Path) -> Subject:
    """A file of this computer; of a split set, all parts beside it. Blocks. Raises GgufError."""
    shard = shards_of(file.name)
    files = [file] if shard is None else [file.with_name(name) for name in shard.all]
    return guessed(clean_line(file.name, 200), [Part(one.name, "model", read_slim(one)) for one in files])


def guessed(label: str, parts: Sequence[Part]) -> Subject:
    """A model that no catalog describes: its header says what it is for."""
    subject = made_of(label, parts, None)
    return replace(subject, mode=mode_of(subject.header, use_of(subject.header)))


def made_of(
    label: str,
    parts: Sequence[Part],
    sha256: str | None,
    about: Model | None = None,
    *,
    ref: str | None = None,
) -> Subject:
    """The subject of these files; `about` says what it is for. Raises GgufError for headers of no model."""
    model, draft = _of_role(parts, "model"), _of_role(parts, "draft")
    mmproj = next((part for part in parts if part.role == "mmproj"), None)
    header = merged([part.slim.header for part in model], [part.name for part in model])
    if not header.tensors:
        raise GgufError(
            f"{label} holds no weights.",
            cause="Its header lists no tensor: it is a vocabulary alone, or a part of something.",
            hint="Take the model from a source that has all of it.",
        )
    adapters = [part for part in parts if part.role == "lora"]
    return Subject(
        label=label,
        header=header,
        parts=tuple(part.stub for part in model),
        sha256=sha256,
        mode=PLAIN if about is None else mode_of(header, about.use, about.pooling),
        ref=ref,
        mmproj=None if mmproj is None else projector_of(mmproj.slim.header),
        draft=merged([part.slim.header for part in draft], [part.name for part in draft]) if draft else None,
        draft_parts=tuple(part.stub for part in draft),
        adapters=tuple(lora_of(part.slim.header, header, part.name) for part in adapters),
    )


def _of_role(parts: Sequence[Part], role: Role) -> list[Part]:
    """In the order of a split set."""
    return sorted((part for part in parts if part.role == role), key=_number)


def _number(part: Part) -> int:
    shard = shards_of(part.name)
    return 0 if shard is None else shard.number
