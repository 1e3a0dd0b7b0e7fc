"""`models show`: all that is known of one model, and what its repositories hold on the Hub when asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appliance import hub as hubs
from appliance.catalog import HfSource, Model, ModelRef, refs_of, repos_of
from appliance.errors import UsageError
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
    (`ref quant pin size state path source files`) and `hub`: null, or a list of its repositories with `repo
    page commit license gated downloads likes quants projectors`. A quant there has `quant files size complete
    pinnable add` and, for a listed model, `ref` (what to pull), `listed` and `same_bytes` (as the listed pin;
    null = not listed, or from elsewhere). A bare repository has `id: null`.

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
    model = (await threads.run(None, _resolved, library, name)).model
    here = {stored.ref: stored for stored in await threads.run(None, library.store.list)}
    document = _document(library, model, here)
    if hub:
        if not repos_of(model):
            raise UsageError(
                f"{model.id} does not come from the Hub.",
                hint=f"`appliance models show {model.id}` shows it.",
            )
        document["hub"] = [await _repository(repo, None, model, env) for repo in repos_of(model)]
    return document


def _resolved(library: Library, name: str) -> ModelRef:
    """The model of `name`; a quant that is not listed does not matter here."""
    model, _, _ = library.catalog.split(name, library.settings.aliases)
    return refs_of(model)[0] if model is not None else library.resolve(name)


def _document(library: Library, model: Model, here: Mapping[str, Stored]) -> dict[str, Any]:
    return {
        "id": model.id, "name": model.name, "family": model.family, "params": model.params,
        "context": model.context, "unverified": list(model.unverified), "license": model.license,
        "license_note": model.license_note, "restricted": model.restricted,
        "accepted": has_accepted(library, model) if model.restricted else None,
        "use": list(model.use), "notes": model.notes,
        "variants": [_variant(ref, here.get(ref.ref)) for ref in refs_of(model)],
        "hub": None,
    }  # fmt: skip


def _variant(ref: ModelRef, stored: Stored | None) -> dict[str, Any]:
    variant = ref.variant
    return {
        "ref": ref.ref, "quant": ref.quant, "pin": variant.pin, "size": variant.size,
        "state": "here" if stored else "absent", "path": str(stored.main) if stored else None,
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
    row: dict[str, Any] = {
        "quant": quant.label, "size": quant.size, "complete": quant.complete, "pinnable": quant.pinnable,
        "files": [_file(file) for file in quant.files],
        "add": f"hf:{repo.repo}/{clean_line(quant.files[0].path, 300)}",
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
        if not (isinstance(listed.source, HfSource) and listed.source.repo == repo.repo) and not same:
            same = None  # another repository makes other bytes of the same quant
    return row | {
        "ref": f"{model.id}:{listed.quant if listed else quant.label}" if quant.label else None,
        "listed": listed is not None, "same_bytes": same,
    }  # fmt: skip


def _file(file: hubs.RepoFile) -> dict[str, Any]:
    return {"name": clean_line(file.path, 300), "size": file.size, "sha256": file.sha256}
