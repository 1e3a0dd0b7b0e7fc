"""`models search`: words over the catalog, and over the Hub when asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appliance import hub
from appliance.catalog import Model, refs_of, repos_of
from appliance.errors import UsageError
from appliance.operations.models import Library
from appliance.store import threads

LIMIT = 20


async def search(library: Library, text: str, *, limit: int = LIMIT) -> list[dict[str, Any]]:
    """Rows of what matches `text` in the catalog, at most `limit`.

    Every word has to occur in id, name, family, use or quant; ids come before the rest. A row: `where`
    ("catalog"), `id name family params context license license_note use quants size` (bytes of the default
    variant) and `here` (refs on this disk). Raises UsageError for an empty text.
    """
    words = _words(text)
    here = {stored.ref for stored in await threads.run(None, library.store.list)}
    models = library.catalog.models.values()
    ranked = [(rank, model) for model in models if (rank := _rank(model, words)) is not None]
    ranked.sort(key=lambda pair: pair[0])
    return [_row(model, here) for _, model in ranked[:limit]]


async def search_hub(
    library: Library, text: str, *, limit: int = LIMIT, env: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Rows of what matches `text` on the Hub, at most `limit`, the most fetched first.

    A row: `where` ("hub"), `repo page downloads likes gated license updated` and `listed_as` (ids of the
    catalog that come from it). Raises HubError, and UsageError for an empty text or a malformed `HF_ENDPOINT`
    or token.
    """
    words = " ".join(_words(text))
    listed: dict[str, list[str]] = {}
    for model in library.catalog.models.values():
        for repo in repos_of(model):
            listed.setdefault(repo.casefold(), []).append(model.id)
    return [
        {
            "where": "hub", "repo": found.repo, "page": found.page, "downloads": found.downloads,
            "likes": found.likes, "gated": found.gated, "license": found.license, "updated": found.updated,
            "listed_as": listed.get(found.repo.casefold(), []),
        }
        for found in await hub.aside(hub.search, words, limit=limit, env=env)
    ]  # fmt: skip


def _words(text: str) -> list[str]:
    words = text.lower().split()
    if not words:
        raise UsageError("Nothing to search for.", hint="Like: `appliance models search qwen3 code`.")
    return words


def _rank(model: Model, words: list[str]) -> int | None:
    """The smaller the better; None when a word occurs nowhere."""
    total = 0
    for word in words:
        found = _of_word(model, word)
        if found is None:
            return None
        total += found
    return total


def _of_word(model: Model, word: str) -> int | None:
    quants = [variant.quant.lower() for variant in model.variants]
    tests = (
        word == model.id,
        word == model.family or model.id.startswith(word),
        word in model.use or word in model.id.split("-"),
        word in model.id or word in model.family,
        word in model.name.lower(),
        any(word in use for use in model.use) or any(word in quant for quant in quants),
    )
    return next((number for number, matches in enumerate(tests) if matches), None)


def _row(model: Model, here: set[str]) -> dict[str, Any]:
    refs = refs_of(model)
    return {
        "where": "catalog", "id": model.id, "name": model.name, "family": model.family,
        "params": model.params, "context": model.context, "license": model.license,
        "license_note": model.license_note, "use": list(model.use), "quants": [ref.quant for ref in refs],
        "size": refs[0].variant.size, "here": [ref.ref for ref in refs if ref.ref in here],
    }  # fmt: skip
