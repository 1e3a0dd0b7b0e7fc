"""Taking in a model that is on this computer already, without a copy.

Names of folders and blobs only make a guess. What a file is, its hash decides: one of the catalog is taken in
as that, any other gets an entry of its own in the user's models.toml.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.catalog import Catalog, File, ModelRef
from appliance.errors import ApplianceError
from appliance.operations.catalog import require_license, writing
from appliance.operations.import_checks import require_no_other, require_stated
from appliance.operations.import_entry import new_ref
from appliance.operations.import_survey import (
    PROGRAMS,
    Found,
    Survey,
    candidates,
    models_of,
    named,
    the_one,
)
from appliance.operations.models import Library
from appliance.store import OnProgress, Stored, records, threads
from appliance.store.caches import Candidate, Part
from appliance.store.prove import Proven, prove_files
from appliance.store.taking import How
from appliance.store.types import no_progress
from appliance.text import clean_line

__all__ = ["PROGRAMS", "Found", "Imported", "Survey", "candidates", "import_path", "named"]

log = logging.getLogger("appliance.models")


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import came to."""

    ref: ModelRef
    stored: Stored | None
    """None: it is not whole; a pull fetches what is in `missing`."""
    how: How | None
    """None = it was here already."""
    why: str | None
    """Why it is no hard link."""
    listed: bool
    """True: the catalog knew these bytes; False: they got an entry in the user's models.toml."""
    missing: tuple[File, ...]
    """Files of the model that were not beside it."""


async def import_path(
    library: Library,
    what: Path | Candidate,
    *,
    id: str | None = None,  # noqa: A002 - the word of the command line
    quant: str | None = None,
    how: How | None = None,
    accepted: bool = False,
    on_progress: OnProgress = no_progress,
) -> Imported:
    """Hash a model file (with its set and projector), and take it in as what it is.

    `id` and `quant` name it where the catalog does not know its bytes. `how` None: by hard link, else by
    reference. `accepted`: its licence, where that limits use. Raises UsageError (no such file, name taken,
    `how` not possible), NotVerified (its bytes are not what it is stated to be; without `id` also where the
    catalog pins others for it), LicenseNotAccepted, GgufError, ModelMissing and what `Store.adopt` raises.
    The user's files are never changed.
    """
    candidate = what if isinstance(what, Candidate) else await the_one(library, what)
    if id is None and quant is None and how is None:
        here = await threads.run(None, _as_it_is, library, candidate)
        if here is not None:
            return here
    work = _Import(library, candidate, how, accepted, on_progress)
    await work.prove(candidate.models)
    require_stated(library, candidate.models, work.proven)
    refs = _listed(library.catalog, [work.proven[part.path] for part in candidate.models], id, quant)
    if refs:
        return await work.as_listed(refs)
    if id is None:
        await threads.run(None, require_no_other, library, candidate, work.proven)
    await work.prove(candidate.parts)
    require_stated(library, candidate.parts, work.proven)
    return await work.as_new(id, quant)


class _Import:
    """One import, with what has been hashed for it so far."""

    def __init__(
        self,
        library: Library,
        candidate: Candidate,
        how: How | None,
        accepted: bool,
        on_progress: OnProgress,
    ) -> None:
        self._library = library
        self._candidate = candidate
        self._how = how
        self._accepted = accepted
        self._on_progress = on_progress
        self.proven: dict[Path, Proven] = {}
        """By the path of the part."""

    async def prove(self, parts: Sequence[Part]) -> None:
        """Hash those that are not hashed yet."""
        paths = [part.path for part in parts if part.path not in self.proven]
        if paths:
            found = await prove_files(self._candidate.name, paths, self._on_progress)
            self.proven |= dict(zip(paths, found, strict=True))

    async def as_listed(self, refs: Sequence[ModelRef]) -> Imported:
        """As a variant of the catalog: the one of which most is here, first one in the catalog else."""
        sizes = {pin.size for ref in refs for pin in ref.variant.files if pin.role != "model"}
        beside = [part for part in (*self._candidate.parts, *self._candidate.others) if part.role != "model"]
        await self.prove([part for part in beside if part.size in sizes])
        here = {item.sha256: item for item in self.proven.values()}

        def lacking(ref: ModelRef) -> list[File]:
            return [pin for pin in ref.variant.files if pin.sha256 not in here]

        ref = min(refs, key=lambda ref: len(lacking(ref)))
        await self._require_license(ref)
        files = [here.get(pin.sha256) for pin in ref.variant.files]
        done = await self._library.store.adopt(ref, files, self._how, self._on_progress)
        return Imported(ref, done.stored, done.how, done.why, True, tuple(lacking(ref)))

    async def _require_license(self, ref: ModelRef, named: str | None = None) -> None:
        path = shlex.quote(clean_line(str(self._candidate.main.path), 300))
        command = f"appliance models import {path}" + (f" --id {named}" if named else "")
        await threads.run(None, require_license, self._library, ref, self._accepted, command)

    async def as_new(self, model_id: str | None, quant: str | None) -> Imported:
        """As a model of the user's own."""
        catalog = self._library.catalog
        ref = new_ref(catalog, self._candidate, self.proven, model_id=model_id, quant=quant)
        await self._require_license(ref, model_id)
        files = [self.proven[part.path] for part in self._candidate.parts]
        done = await self._library.store.adopt(ref, files, self._how, self._on_progress)
        try:
            await threads.run(None, _enter, self._library, ref)
        except ApplianceError:
            if done.how is not None:  # a model without an entry could not be named
                await threads.run(None, self._library.store.remove, ref)
            raise
        return Imported(ref, done.stored, done.how, done.why, False, ())


def _as_it_is(library: Library, candidate: Candidate) -> Imported | None:
    """A model whose very files are in the store, unchanged since they were verified: no need to read them."""
    for stored in library.store.list():
        ref = library.catalog.find(stored.ref)
        ours = {(file.inode, file.device) for file in stored.files if records.unchanged(file)}
        theirs = {(found.st_ino, found.st_dev) for part in candidate.parts if (found := _stat(part.path))}
        whole = len(ours) == len(stored.files) and ref is not None and records.matches_pin(stored, ref)
        if ref is not None and whole and theirs and theirs <= ours:
            return Imported(ref, stored, None, None, True, ())
    return None


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _enter(library: Library, ref: ModelRef) -> None:
    if ref.id in writing.own_models(library.paths):
        writing.add_variant(library.paths, ref.id, ref.variant)
    else:
        writing.add_model(library.paths, ref.model)
    log.info("%s is entered in %s", ref.ref, library.paths.user_catalog)


def _listed(
    catalog: Catalog, models: Sequence[Proven], model_id: str | None, quant: str | None
) -> list[ModelRef]:
    """The variants of the catalog whose model has exactly these bytes, of the asked name if one is asked."""
    actual = [(item.size, item.sha256) for item in models]
    return [
        ref
        for ref in catalog.refs()
        if [(pin.size, pin.sha256) for pin in models_of(ref)] == actual
        and model_id in (None, ref.id)
        and (quant is None or quant.casefold() == ref.quant.casefold())
    ]
