"""The licence of a new entry: a second name never frees a model from the terms of the first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from appliance.catalog import Catalog, File, Model, repos_of, terms


@dataclass(frozen=True, slots=True)
class Terms:
    """What an entry says of its licence."""

    license: str | None
    note: str | None

    @property
    def restricted(self) -> bool:
        return terms.is_non_commercial(self.note)


def terms_of(
    catalog: Catalog, repo: str | None, files: Sequence[File], stated: Iterable[str | None], page: str | None
) -> Terms:
    """What counts for these files: `stated` by card and header, or what the catalog says of the same model.

    The same are those of one repository or with the same bytes. Of several, one that forbids commercial use
    counts, then the catalog's, then the first that is stated. `page` is where the licence can be read.
    """
    listed = [Terms(model.license, model.license_note) for model in same_models(catalog, repo, files)]
    own = [Terms(word, terms.note_of(word, page)) for word in stated if word]
    found = [*(item for item in listed if item.license or item.note), *own]
    if not found:
        return Terms(None, terms.note_of(None, page))
    return next((item for item in found if item.restricted), found[0])


def same_models(catalog: Catalog, repo: str | None, files: Sequence[File]) -> list[Model]:
    """Models of the catalog that come from the same repository, or have one of these model files."""
    wanted = None if repo is None else repo.casefold()
    hashes = {file.sha256 for file in files if file.role == "model"}
    return [
        model
        for model in catalog.models.values()
        if wanted in {name.casefold() for name in repos_of(model)} or hashes & _hashes(model)
    ]


def is_family(catalog: Catalog, name: str) -> bool:
    """Whether `name` means a whole family: an entry of that name would take its place unasked."""
    return any(model.family == name for model in catalog.models.values())


def free_name(catalog: Catalog, name: str) -> str:
    """`name`, or one like it that means nothing yet, to propose to people."""
    tries = (name, *(f"{name[:90]}-{n}" for n in range(2, 10)))
    return next((t for t in tries if t not in catalog.models and not is_family(catalog, t)), "NAME")


def _hashes(model: Model) -> set[str]:
    return {file.sha256 for variant in model.variants for file in variant.files if file.role == "model"}
