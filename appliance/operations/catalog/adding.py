"""`models add`: a source becomes an entry of the user's own, with its pin."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from appliance.catalog import Catalog, HfSource, Model, Use, Variant, repos_of
from appliance.errors import UsageError
from appliance.operations.catalog import choosing, heritage, sources, writing
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
    read from the file; without them nothing is added. A model that is listed keeps its licence under any
    further id.

    The document: `ref id quant pin stated_by size files source file` (where it was written), `added`
    (false: it was there with the same pin) and `hints`. Raises UsageError when the id has that quant with
    another pin, is a family's or of a model from elsewhere; NotVerified when no pin can be had, or a stated
    one differs; HubError, DownloadError, GgufError, ModelMissing.
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
    """Enter it; when another process entered that id meanwhile, look once more and join what is there."""
    try:
        return _entered(library, candidate, wishes)
    except writing.Meanwhile:
        return _entered(library, candidate, wishes)


def _entered(library: Library, candidate: Candidate, wishes: Wishes) -> dict[str, Any]:
    catalog, own = library.catalog, writing.own_models(library.paths)
    joins = None if wishes.model_id else _listed_id(catalog, candidate)
    model_id = wishes.model_id or joins or candidate.description.model_id
    quant = wishes.quant or candidate.description.quant
    if quant is None:
        raise UsageError(
            "Neither the file's name nor its header tells the quantisation.", hint="Name it: --quant Q4_K_M."
        )
    model = _model(catalog, model_id, quant, candidate)
    variant, known = model.variants[0], catalog.models.get(model.id)
    _require_name(catalog, model, known, candidate, mine=model.id in own)
    same = _same_quant(known, quant)
    if same is not None:
        return _document(model.id, same, candidate, None, _require_same(model.id, same, variant))
    file = _written(library, model, known, mine=model.id in own)
    said = () if joins is None else (_joined(candidate, joins),)
    return _document(model.id, variant, candidate, file, said)


def _written(library: Library, model: Model, known: Model | None, *, mine: bool) -> Path:
    """The file that the entry was written to."""
    paths, variant = library.paths, model.variants[0]
    if known is None:
        writing.add_model(paths, model)
    elif mine:
        writing.add_variant(paths, model.id, variant)
    else:
        if writing.add_pin(paths, model.id, variant) != variant:
            raise UsageError(
                f"{model.id}:{variant.quant} was pinned meanwhile, to other files.",
                hint="Look at it, then try again.",
            )
        return paths.pins
    return paths.user_catalog


def _require_name(
    catalog: Catalog, model: Model, known: Model | None, candidate: Candidate, *, mine: bool
) -> None:
    """An id goes on meaning what it means. Raises UsageError with another one."""
    other = heritage.free_name(catalog, candidate.description.model_id)
    if known is None:
        if heritage.is_family(catalog, model.id):
            raise UsageError(
                f"{model.id} is the name of a family of models.",
                cause="As an id, it would take the place of the family's members.",
                hint=f"Take another name: --id {heritage.free_name(catalog, model.id)}.",
            )
        return
    if not mine and not _is_own_repo(known, candidate):
        raise UsageError(
            f"{model.id} is a model of the catalog, and this is not from a repository of it.",
            cause=f"Its files come from {', '.join(repos_of(known)) or _place(known.variants[0])}.",
            hint=f"Take another name for this one: --id {other}.",
        )
    if model.restricted and not known.restricted:
        raise UsageError(
            f"{model.id} has another licence than this one, which is limited: {model.license or 'unknown'}.",
            cause=model.license_note,
            hint=f"Take another name for this one: --id {other}.",
        )


def _is_own_repo(known: Model, candidate: Candidate) -> bool:
    source = candidate.source
    return isinstance(source, HfSource) and source.repo.casefold() in {r.casefold() for r in repos_of(known)}


def _same_quant(known: Model | None, quant: str) -> Variant | None:
    variants = () if known is None else known.variants
    return next((v for v in variants if v.quant.casefold() == quant.casefold()), None)


def _require_same(model_id: str, same: Variant, wanted: Variant) -> tuple[str, ...]:
    """What to say of a variant that is there already with these bytes. Raises UsageError for other bytes."""
    old, new, alike = same.source, wanted.source, _bytes_of(same) == _bytes_of(wanted)
    if alike and old == new:
        return ()
    cause = f"Its files come from {_place(same)}."
    if isinstance(old, HfSource) and isinstance(new, HfSource) and old.repo == new.repo:
        before, after = old.revision[:12], new.revision[:12]
        if alike:
            return (f"It stays pinned at commit {before}; at {after} the file is the same.",)
        cause = f"It is pinned at commit {before} of {old.repo}, and at commit {after} this is another file."
    raise UsageError(
        f"{model_id}:{same.quant} is in the catalog already, with another pin.",
        cause=cause,
        hint="Take another name for this one: --id NAME or --quant NAME.",
    )


def _bytes_of(variant: Variant) -> list[tuple[str, int, str]]:
    return [(file.name, file.size, file.sha256) for file in variant.files if file.role == "model"]


def _listed_id(catalog: Catalog, candidate: Candidate) -> str | None:
    """The id under which the catalog lists that repository, when it is one."""
    ids = [model.id for model in catalog.models.values() if _is_own_repo(model, candidate)]
    return ids[0] if len(ids) == 1 else None


def _joined(candidate: Candidate, model_id: str) -> str:
    repo = candidate.source.repo if isinstance(candidate.source, HfSource) else "it"
    return f"{repo} is listed as {model_id}, so this is a quant of that; --id NAME makes an entry of its own."


def _model(catalog: Catalog, model_id: str, quant: str, candidate: Candidate) -> Model:
    """A whole entry. Its family is its own id: a family of the package must not mean this model unasked."""
    about = candidate.description
    stated = (candidate.license, about.license)
    repo = candidate.source.repo if isinstance(candidate.source, HfSource) else None
    licence = heritage.terms_of(catalog, repo, candidate.files, stated, candidate.page)
    try:
        variant = Variant(
            quant=quant, source=candidate.source, files=candidate.files, pin=candidate.pin,
            pin_host=candidate.pin_host,
        )  # fmt: skip
        return Model(
            id=model_id, family=model_id, name=about.name, params=about.params or candidate.params,
            context=about.context, license=licence.license, license_note=licence.note,
            use=_use(candidate),
            notes=f"{about.arch} arch", variants=(variant,),
        )  # fmt: skip
    except ValidationError as error:
        raise _wrong_name(error, model_id, quant) or choosing.unusable(error) from None


def _use(candidate: Candidate) -> tuple[Use, ...]:
    """What its header says, and pictures where it has a projector."""
    said = candidate.description.use
    sees = any(file.role == "mmproj" for file in candidate.files) and said[0] in ("chat", "completion")
    return (*said, "vision") if sees else said


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


def _document(
    model_id: str, variant: Variant, candidate: Candidate, file: Path | None, said: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        "ref": f"{model_id}:{variant.quant}", "id": model_id, "quant": variant.quant, "pin": variant.pin,
        "stated_by": candidate.stated_by, "size": variant.size,
        "source": variant.source.model_dump(mode="json"),
        "files": [file.model_dump(mode="json", exclude={"members"}) for file in variant.files],
        "added": file is not None, "file": None if file is None else str(file),
        "hints": [*said, *candidate.hints],
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
