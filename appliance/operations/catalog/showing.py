"""`models show`: all that is known of one model, and what its repositories hold on the Hub when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from appliance import hub as hubs
from appliance.catalog import File, HfSource, Model, ModelRef, refs_of, repos_of
from appliance.errors import UnknownModel, UsageError
from appliance.hub import Quant, Repo
from appliance.operations.catalog.licences import has_accepted
from appliance.operations.models import Library
from appliance.store import Stored, threads
from appliance.text import clean_line


async def show(
    library: Library, name: str, *, hub: bool = False, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The document of one model; `name` is an id, `ID:QUANT`, alias or family, or `hf:OWNER/REPO[@REV]`.

    `id name family params context unverified license license_note restricted accepted use notes`, `variants`
    (`ref quant pin pin_host size state path source files`) and `hub`: null, or a list of its repositories
    with `repo page commit license gated downloads likes quants projectors`. A quant there has `quant files
    size complete pinnable usable` (false: its name can't be a file's here), `add` (null: it can't be added)
    and, for a listed model, `ref` (what to pull), `listed` and `same_bytes` (as the listed pin; null = not
    listed, or from elsewhere). A bare repository has `id: null`.

    Raises UnknownModel, UsageError, and HubError when the Hub was to be asked and can't answer.
    """
    if name.startswith("hf:") or ("/" in name and hub):
        wanted = hubs.parse(name)
        if wanted.path is not None:
            raise UsageError(
                f"{clean_line(name, 200)} names a file.",
                hint="Show the repository (hf:OWNER/REPO), or `appliance models add` the file.",
            )
        return {
            "id": None,
            "variants": [],
            "hub": [await _repository(wanted.repo, wanted.revision, None, env)],
        }
    model, missing = await threads.run(None, _resolved, library, name, hub)
    lost = {stored.ref: stored for stored in await threads.run(None, library.store.lost)}
    here = {stored.ref: stored for stored in await threads.run(None, library.store.list)}
    document = _document(library, model, here, lost)
    if hub:
        if not repos_of(model):
            raise UsageError(
                f"{model.id} does not come from the Hub.",
                hint=f"`appliance models show {model.id}` shows it.",
            )
        document["hub"] = [await _repository(repo, None, model, env) for repo in repos_of(model)]
        _require_quant(model, missing, document["hub"])
    return document


def _resolved(library: Library, name: str, hub: bool) -> tuple[Model, str | None]:
    """The model of `name`, and the quant that is not listed, which only the Hub may still have."""
    model, quant, _ = library.catalog.split(name, library.settings.aliases)
    if model is None or not hub or not quant or not repos_of(model):
        return library.resolve(name).model, None
    listed = any(variant.quant.casefold() == quant.casefold() for variant in model.variants)
    return model, None if listed else quant


def _require_quant(model: Model, quant: str | None, repos: Sequence[Mapping[str, Any]]) -> None:
    """Raises UnknownModel when the repositories do not hold it either."""
    offered = dict.fromkeys(row["quant"] for repo in repos for row in repo["quants"] if row["quant"])
    if quant is not None and quant.casefold() not in {label.casefold() for label in offered}:
        raise UnknownModel(
            f"{model.id} has no variant {clean_line(quant, 40)!r}, and its repositories hold none.",
            cause=f"They hold {', '.join(list(offered)[:30])}." if offered else None,
            hint=f"`appliance models show {model.id} --hub` shows all with their sizes.",
        )


def _document(
    library: Library, model: Model, here: Mapping[str, Stored], lost: Mapping[str, Stored]
) -> dict[str, Any]:
    return {
        "id": model.id, "name": model.name, "family": model.family, "params": model.params,
        "context": model.context, "unverified": list(model.unverified), "license": model.license,
        "license_note": model.license_note, "restricted": model.restricted,
        "accepted": has_accepted(library, model) if model.restricted else None,
        "use": list(model.use), "notes": model.notes,
        "variants": [_variant(ref, here.get(ref.ref), lost.get(ref.ref)) for ref in refs_of(model)],
        "hub": None,
    }  # fmt: skip


def _variant(ref: ModelRef, here: Stored | None, lost: Stored | None) -> dict[str, Any]:
    """`lost`: a reference whose file is gone; its path is where that was."""
    variant, stored = ref.variant, here or lost
    return {
        "ref": ref.ref, "quant": ref.quant, "pin": variant.pin, "pin_host": variant.pin_host,
        "size": variant.size,
        "state": "here" if here else "missing" if lost else "absent",
        "path": str(stored.main) if stored else None,
        "source": variant.source.model_dump(mode="json"),
        "files": [
            {"name": f.name, "role": f.role, "size": f.size, "sha256": f.sha256, "part": f.part}
            for f in variant.files
        ],
    }  # fmt: skip


async def _repository(
    name: str, revision: str | None, model: Model | None, env: Mapping[str, str] | None
) -> dict[str, Any]:
    repo = await hubs.aside(hubs.look, name, revision, env=env)
    quants, projectors = hubs.grouped(repo.files)
    return {
        "repo": repo.repo, "page": repo.page, "commit": repo.commit, "license": repo.license,
        "gated": repo.gated, "downloads": repo.downloads, "likes": repo.likes,
        "quants": [_quant(quant, repo, model) for quant in quants],
        "projectors": [_file(file) for file in projectors],
    }  # fmt: skip


def _quant(quant: Quant, repo: Repo, model: Model | None) -> dict[str, Any]:
    usable = all(_can_be_named(file.path) for file in quant.files)
    row: dict[str, Any] = {
        "quant": quant.label, "size": quant.size, "complete": quant.complete, "pinnable": quant.pinnable,
        "usable": usable, "files": [_file(file) for file in quant.files],
        "add": f"hf:{repo.repo}/{quant.files[0].path}" if usable and quant.complete else None,
    }  # fmt: skip
    if model is None:
        return row
    listed = next(
        (v for v in model.variants if quant.label and v.quant.casefold() == quant.label.casefold()), None
    )
    same = None
    if listed is not None:
        pins = [file.sha256 for file in listed.files if file.role == "model"]
        same = pins == [file.sha256 for file in quant.files]
        if any(file.sha256 is None for file in quant.files):
            same = None  # a mirror that states no hashes
        if not (isinstance(listed.source, HfSource) and listed.source.repo == repo.repo) and not same:
            same = None  # another repository makes other bytes of the same quant
    return row | {
        "ref": f"{model.id}:{listed.quant if listed else quant.label}" if quant.label else None,
        "listed": listed is not None, "same_bytes": same,
    }  # fmt: skip


def _can_be_named(path: str) -> bool:
    """Whether the catalog takes it as a file's name: not too long, nothing that some system refuses."""
    try:
        File(name=path, size=1, sha256="0" * 64)
    except ValidationError:
        return False
    return True


def _file(file: hubs.RepoFile) -> dict[str, Any]:
    return {"name": clean_line(file.path, 300), "size": file.size, "sha256": file.sha256}
