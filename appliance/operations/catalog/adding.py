"""`models add`: a source becomes an entry of the user's own, with its pin."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from appliance.catalog import HfSource, Model, ModelRef, Variant, repos_of
from appliance.errors import UsageError
from appliance.operations.catalog import choosing, sources, writing
from appliance.operations.catalog.candidate import Candidate, Wishes
from appliance.operations.catalog.ondisk import at_path
from appliance.operations.models import Library
from appliance.store import OnProgress, threads
from appliance.store.types import no_progress
from appliance.text import clean_line


async def add(
    library: Library,
    source: str,
    *,
    model_id: str | None = None,
    sha256: str | None = None,
    size: int | None = None,
    quant: str | None = None,
    on_progress: OnProgress = no_progress,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Make an entry of `source`: `hf:OWNER/REPO[@REV]/FILE`, an address or a path. Only its header is read.

    A new id goes into the user's models.toml, and so does a further quant of an id that is there. A further
    quant of an id of the package goes to `pins.toml`, since an entry of the user would replace the
    package's as a whole. Size and hash are the user's, the Hub's, those of a server that can be trusted, or
    read from the file; without them nothing is added.

    The document: `ref id quant pin stated_by size files source file` (where it was written), `added`
    (false: it was there with the same pin) and `hints`. Raises UsageError when the id has that quant with
    another pin, NotVerified when no pin can be had or a stated one differs, HubError, DownloadError,
    GgufError, ModelMissing.
    """
    env = os.environ if env is None else env
    wishes = Wishes(model_id, _hash(sha256), size, quant)
    candidate = await _candidate(source.strip(), wishes, env, on_progress)
    return await threads.run(None, _add, library, candidate, wishes)


async def _candidate(
    source: str, wishes: Wishes, env: Mapping[str, str], on_progress: OnProgress
) -> Candidate:
    if not source:
        raise UsageError("No source was named.", hint="hf:OWNER/REPO/FILE, an address, or a path.")
    name = sources.hub_name(source, env)
    if name is not None:
        return await sources.on_hub(name, wishes, env)
    if re.match(r"https?://", source, re.IGNORECASE):
        return await sources.at_url(source, wishes, env)
    if re.match(r"[a-z][a-z0-9+.-]*://", source, re.IGNORECASE):
        raise UsageError(
            f"{clean_line(source, 200)} is of no kind that can be added.",
            hint="hf:OWNER/REPO/FILE, http(s)://..., or a path of this computer.",
        )
    return await at_path(Path(source), wishes, on_progress)


def _add(library: Library, candidate: Candidate, wishes: Wishes) -> dict[str, Any]:
    model_id = wishes.model_id or _listed_id(library, candidate) or candidate.description.model_id
    quant = wishes.quant or candidate.description.quant
    if quant is None:
        raise UsageError(
            "Neither the file's name nor its header tells the quantisation.", hint="Name it: --quant Q4_K_M."
        )
    model = _model(model_id, quant, candidate)
    ref = ModelRef(model, model.variants[0])
    known = library.catalog.models.get(model.id)
    same = (
        next((v for v in known.variants if v.quant.casefold() == quant.casefold()), None) if known else None
    )
    if same is not None:
        if same.source == ref.variant.source and same.files == ref.variant.files:
            return _document(ref.model.id, same, candidate, None)
        raise UsageError(
            f"{model.id}:{same.quant} is in the catalog already, with another pin.",
            cause=f"Its files come from {_place(same)}.",
            hint="Take another name for this one: --id NAME or --quant NAME.",
        )
    paths = library.paths
    if known is None:
        writing.add_model(paths, model)
        file = paths.user_catalog
    elif model.id in writing.own_models(paths):
        writing.add_variant(paths, model.id, ref.variant)
        file = paths.user_catalog
    else:
        if writing.add_pin(paths, model.id, ref.variant) != ref.variant:
            raise UsageError(
                f"{ref.ref} was pinned meanwhile, to other files.", hint="Look at it, then try again."
            )
        file = paths.pins
    return _document(model.id, ref.variant, candidate, file)


def _listed_id(library: Library, candidate: Candidate) -> str | None:
    """The id under which the catalog lists that repository, when it is one."""
    if not isinstance(candidate.source, HfSource):
        return None
    repo = candidate.source.repo
    ids = [model.id for model in library.catalog.models.values() if repo in repos_of(model)]
    return ids[0] if len(ids) == 1 else None


def _model(model_id: str, quant: str, candidate: Candidate) -> Model:
    """A whole entry. Its family is its own id: a family of the package must not mean this model unasked."""
    about = candidate.description
    try:
        variant = Variant(quant=quant, source=candidate.source, files=candidate.files, pin=candidate.pin)
        return Model(
            id=model_id, family=model_id, name=about.name, params=about.params or candidate.params,
            context=about.context, license=candidate.license or about.license, use=about.use,
            notes=f"{about.arch} arch", variants=(variant,),
        )  # fmt: skip
    except ValidationError as error:
        raise _wrong_name(error, model_id, quant) or choosing.unusable(error) from None


def _wrong_name(error: ValidationError, model_id: str, quant: str) -> UsageError | None:
    where = {problem["loc"][0] for problem in error.errors()}
    if "id" in where:
        return UsageError(
            f"{clean_line(model_id, 100)!r} can't be an id.",
            hint="--id takes lower-case letters, digits and . _ - (at most 96, none of . _ - first).",
        )
    if "quant" in where:
        return UsageError(
            f"{clean_line(quant, 60)!r} can't name a quantisation.",
            hint="--quant takes letters, digits and . _ - (at most 32, none of . _ - first).",
        )
    return None


def _document(model_id: str, variant: Variant, candidate: Candidate, file: Path | None) -> dict[str, Any]:
    return {
        "ref": f"{model_id}:{variant.quant}", "id": model_id, "quant": variant.quant, "pin": variant.pin,
        "stated_by": candidate.stated_by, "size": variant.size,
        "source": variant.source.model_dump(mode="json"),
        "files": [file.model_dump(mode="json", exclude={"members"}) for file in variant.files],
        "added": file is not None, "file": None if file is None else str(file),
        "hints": list(candidate.hints),
    }  # fmt: skip


def _place(variant: Variant) -> str:
    source = variant.source.model_dump()
    return clean_line(str(source.get("repo") or source.get("url") or source.get("path") or "wheels"), 200)


def _hash(text: str | None) -> str | None:
    """A hash as people paste it: any case, perhaps with `sha256:` in front. Raises UsageError."""
    if text is None:
        return None
    plain = text.strip().lower().removeprefix("sha256:")
    if not re.fullmatch(r"[0-9a-f]{64}", plain):
        raise UsageError("--sha256 is not a SHA-256.", hint="It has 64 hex digits.")
    return plain
