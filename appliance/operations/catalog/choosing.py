"""What a repository holds -> a variant with its pins. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from appliance import hub
from appliance.catalog import File, HfSource, Model, Role, Variant, reason
from appliance.errors import ApplianceError, NotVerified, UnknownModel
from appliance.hub import Quant, Repo, RepoFile
from appliance.text import clean_line


def the_one(model: Model, quant: str, repo: Repo) -> Quant | None:
    """The files of `quant` in a repository of the model; None when it has none.

    Of several of that name, the one named like the model's other variants. Raises UnknownModel when that
    leaves a choice, NotVerified when the Hub states no hash.
    """
    quants, _ = hub.grouped(repo.files)
    found = [q for q in quants if q.label is not None and q.label.casefold() == quant.casefold()]
    if len(found) > 1:
        stems = {hub.stem_of(v.main.name).casefold() for v in model.variants if _is_of(v, repo)}
        found = [q for q in found if hub.stem_of(q.files[0].path).casefold() in stems] or found
    if len(found) > 1:
        names = ", ".join(clean_line(q.files[0].path, 120) for q in found[:5])
        raise UnknownModel(
            f"{repo.repo} has several files for {quant}.",
            cause=names,
            hint="Add the one you mean: "
            f"`appliance models add hf:{repo.repo}/FILE --id {model.id} --quant NAME`.",
        )
    if found:
        require_pinnable(found[0], repo)
    return found[0] if found else None


def require_pinnable(quant: Quant, repo: Repo) -> None:
    """Raises NotVerified when parts are missing, or a file has no size or hash: nothing is made up."""
    first = clean_line(quant.files[0].path, 120)
    if not quant.complete:
        raise NotVerified(
            f"{first} is one of {quant.n_parts} parts, and {repo.repo} has only {len(quant.files)} of them.",
            hint=f"See {repo.page}.",
        )
    if not quant.pinnable:
        raise NotVerified(
            f"{repo.stated_by[:1].upper()}{repo.stated_by[1:]} states no SHA-256 for {first}.",
            cause="Without one, nothing could prove what is fetched.",
            hint="With a hash that you trust: `appliance models add hf:... --sha256 HASH --size BYTES`.",
        )


def projector_for(model: Model, repo: Repo) -> RepoFile | None:
    """The projector of a model that sees: as in another variant by bytes, else by name, else the F16 one."""
    _, projectors = hub.grouped(repo.files)
    usable = [file for file in projectors if file.pinnable]
    known = [f for v in model.variants if _is_of(v, repo) for f in v.files if f.role == "mmproj"]
    for pin in known:
        for same in (
            [file for file in usable if file.sha256 == pin.sha256],
            [file for file in usable if file.path == pin.name],
        ):
            if same:
                return same[0]
    if "vision" not in model.use or not usable:
        return None
    return next((file for file in usable if hub.label_of(file.path) == "F16"), usable[0])


def only_projector(repo: Repo) -> RepoFile | None:
    """The projector of a repository that holds one model, in whatever quants: it can't be of another one.

    The F16 one, else the first that can be pinned.
    """
    quants, projectors = hub.grouped(repo.files)
    stems = {hub.stem_of(file.path).casefold() for quant in quants for file in quant.files[:1]}
    usable = [file for file in projectors if file.pinnable]
    if len(stems) != 1 or not usable:
        return None
    return next((file for file in usable if hub.label_of(file.path) == "F16"), usable[0])


def variant_of(
    label: str, repo: Repo, files: Sequence[RepoFile], projector: RepoFile | None = None
) -> Variant:
    """The catalog's form of these files, pinned as stated. Raises ApplianceError for odd names."""
    split = len(files) > 1
    pins = [_pin(file, "model", number if split else None) for number, file in enumerate(files, 1)]
    if projector is not None:
        pins.append(_pin(projector, "mmproj", None))
    try:
        source = HfSource(kind="hf", repo=repo.repo, revision=repo.commit)
        return Variant(quant=label, source=source, files=tuple(pins), pin="hub", pin_host=repo.mirror)
    except ValidationError as error:
        raise unusable(error) from None


def unusable(error: ValidationError) -> ApplianceError:
    """The error for names or numbers of others that can't become an entry."""
    return ApplianceError(
        "This can't become an entry of the catalog.",
        cause=in_words(error),
        hint="Another file of it may do; `--id` and `--quant` name the entry.",
    )


def in_words(error: ValidationError) -> str:
    """The first thing that is wrong with an entry, with its key."""
    first = error.errors(include_url=False, include_input=False)[0]
    return clean_line(f"{'.'.join(map(str, first['loc']))}: {reason(first)}", 300)


def _pin(file: RepoFile, role: Role, part: int | None) -> File:
    try:
        return File(name=file.path, role=role, size=file.size or 0, sha256=file.sha256 or "", part=part)
    except ValidationError as error:
        raise unusable(error) from None


def _is_of(variant: Variant, repo: Repo) -> bool:
    return isinstance(variant.source, HfSource) and variant.source.repo == repo.repo
