"""The catalog entry of a model that no catalog lists. Pure; the caller writes it to the user's file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from appliance.catalog import Catalog, File, FileSource, HfSource, Model, ModelRef, Source, Variant
from appliance.catalog.entries import MAX_NAME
from appliance.errors import UsageError
from appliance.operations import naming
from appliance.operations.catalog import choosing, heritage
from appliance.operations.catalog.heritage import Terms
from appliance.operations.describe import describe
from appliance.store.caches import Candidate, Part
from appliance.store.prove import Proven

_IMPORTED = "-imported"
_UNSAFE = re.compile(r'[\\:*?"<>|]')


def new_ref(
    catalog: Catalog,
    candidate: Candidate,
    proven: Mapping[Path, Proven],
    *,
    model_id: str | None = None,
    quant: str | None = None,
) -> ModelRef:
    """What `candidate`, whose parts are all in `proven`, is called and pinned as.

    It never gets the name of something else: where an id or `id:QUANT` is taken, it gets another one; where
    the user asked for that name, UsageError is raised. So it is for a file that is no language model.
    """
    parts = [(part, proven[part.path]) for part in candidate.parts]
    headers = [item.header for part, item in parts if part.role == "model"]
    kind = naming.no_model(headers[0])
    if kind is not None:
        raise UsageError(f"{candidate.name} is {kind}, not a model.", hint="Import the model beside it.")
    quant = quant or naming.quant_of(headers, candidate.main.file)
    derived = naming.model_id_of(candidate, headers[0])
    variant = _variant(candidate, parts, quant, model_id or derived)
    said = describe(headers[0], candidate.main.file)
    page = None if candidate.repo is None else f"hf:{candidate.repo}"
    licence = heritage.terms_of(catalog, candidate.repo, variant.files, (said.license,), page)
    found = _free_id(catalog, variant, model_id, derived, licence)
    if isinstance(found, Model):
        return ModelRef(found, variant)
    sees = any(part.role == "mmproj" for part, _ in parts) and said.use[0] in ("chat", "completion")
    try:
        model = Model(
            id=found,
            family=found,
            name=headers[0].name or found,
            params=naming.params_of(headers),
            context=said.context,
            license=licence.license,
            license_note=licence.note,
            use=(*said.use, "vision") if sees else said.use,
            variants=(variant,),
        )
    except ValidationError as error:
        raise _unusable(candidate, error) from None
    return ModelRef(model, variant)


def _free_id(
    catalog: Catalog, variant: Variant, wanted: str | None, derived: str, licence: Terms
) -> str | Model:
    """An id that means nothing else yet; or the user's own model of that id, when it lacks this quant."""
    names = [wanted] if wanted else [derived, derived + _IMPORTED, f"{derived}-{variant.main.sha256[:8]}"]
    families = {model.family for model in catalog.models.values()}
    for name in names:
        model = catalog.models.get(name)
        if model is None and name not in families:
            return name
        if model is not None and _takes(model, variant.quant, licence):
            return model
    taken = names[0]
    raise UsageError(
        f"{taken} is the name of another model.",
        cause=f"The catalog has {taken} with other files, and a file is never imported as what it is not.",
        hint="Choose another name with `--id`" + (", or another `--quant`." if wanted else "."),
    )


def _takes(model: Model, quant: str, licence: Terms) -> bool:
    """True for a model that only the user entered, that lacks this quant, and is as limited as this one."""
    own = all(variant.pin == "user" for variant in model.variants)
    return (
        own
        and (model.restricted or not licence.restricted)
        and not any(variant.quant.casefold() == quant.casefold() for variant in model.variants)
    )


def _variant(
    candidate: Candidate, parts: Sequence[tuple[Part, Proven]], quant: str, model_id: str
) -> Variant:
    source, names = _source(candidate, parts)
    if len(parts) == 1 and isinstance(source, FileSource) and not _is_safe(names[0]):
        names = [f"{model_id}-{quant}.gguf"]  # a path for one file: its name here is free
    try:
        return Variant(
            quant=quant,
            source=source,
            pin="user",
            files=tuple(
                File(name=name, role=part.role, size=item.size, sha256=item.sha256, part=part.part)
                for name, (part, item) in zip(names, parts, strict=True)
            ),
        )
    except ValidationError as error:
        raise _unusable(candidate, error) from None


def _source(candidate: Candidate, parts: Sequence[tuple[Part, Proven]]) -> tuple[Source, list[str]]:
    """Where the bytes can be had again: the Hub, if its cache told the truth of all files, else this disk."""
    true = all(part.sha256 == item.sha256 and _is_safe(Path(part.file).name) for part, item in parts)
    if candidate.repo is not None and candidate.revision is not None and true:
        hub = HfSource(kind="hf", repo=candidate.repo, revision=candidate.revision)
        return hub, [part.file for part, _ in parts]
    if len(parts) == 1:
        return FileSource(kind="file", path=str(parts[0][1].path)), [PurePosixPath(parts[0][0].file).name]
    return FileSource(kind="file", path=str(parts[0][1].path.parent)), [item.path.name for _, item in parts]


def _is_safe(name: str) -> bool:
    """A name that `catalog.File` takes, and that says something (a blob's does not)."""
    blob = name.startswith("sha256-")
    short = len(name.encode(errors="replace")) <= MAX_NAME
    return short and name.isprintable() and not blob and not name.startswith(".") and not _UNSAFE.search(name)


def _unusable(candidate: Candidate, error: ValidationError) -> UsageError:
    return UsageError(
        f"{candidate.name} can't be entered in the catalog.",
        cause=choosing.in_words(error),
        hint="Give it another name with `--id` and `--quant`, or rename the file.",
    )
