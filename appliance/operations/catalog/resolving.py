"""What a name means, with quantisations that no catalog lists pinned at their first use."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from appliance import hub
from appliance.catalog import Model, ModelRef, repos_of
from appliance.errors import HubError, UnknownModel
from appliance.operations.catalog import choosing, writing
from appliance.operations.models import Library
from appliance.store import threads
from appliance.text import clean_line

log = logging.getLogger("appliance.models")
_REPOSITORIES = 3
"""How many repositories of one model are asked."""


async def resolve(library: Library, name: str, *, env: Mapping[str, str] | None = None) -> ModelRef:
    """Like `Library.resolve`. `ID:QUANT` that is not listed, of a model on the Hub, is looked up there.

    Commit, sizes and hashes as the Hub states them now are written to `pins.toml` and count from then on: a
    repository that changes later changes nothing here. Raises UnknownModel, or HubError when the Hub had to
    be asked and could not answer; NotVerified when it states no hash.
    """
    try:
        return await threads.run(None, library.resolve, name)
    except UnknownModel as error:
        found, where = await _looked_up(library, name, error, env)
    written = await threads.run(None, writing.add_pin, library.paths, found.id, found.variant)
    log.info("%s:%s is pinned at %s", found.id, written.quant, where)
    return library.catalog.find(f"{found.id}:{written.quant}") or ModelRef(found.model, written)


async def look_up(library: Library, name: str, *, env: Mapping[str, str] | None = None) -> ModelRef:
    """The same without pinning: for a question, which must change nothing. Raises as `resolve` does."""
    try:
        return await threads.run(None, library.resolve, name)
    except UnknownModel as error:
        return (await _looked_up(library, name, error, env))[0]


async def _looked_up(
    library: Library, name: str, unknown: UnknownModel, env: Mapping[str, str] | None
) -> tuple[ModelRef, str]:
    model, quant, _ = library.catalog.split(name, library.settings.aliases)
    if model is None or not quant or not repos_of(model):
        raise unknown
    return await _on_hub(model, quant, unknown, env)


async def _on_hub(
    model: Model, quant: str, unknown: UnknownModel, env: Mapping[str, str] | None
) -> tuple[ModelRef, str]:
    """The variant as the Hub states it now, and where it is."""
    offered: list[str] = []
    said = "The Hub"
    for name in repos_of(model)[:_REPOSITORIES]:
        try:
            repo = await hub.aside(hub.look, name, env=env)
        except HubError as error:
            wanted = f"{model.id}:{clean_line(quant, 40)}"
            raise type(error)(
                f"{wanted} is not in the catalog, so the Hub was asked for it. {error.message}",
                cause=error.cause,
                hint=" ".join(text for text in (error.hint, unknown.hint) if text),
            ) from error
        said = repo.stated_by[:1].upper() + repo.stated_by[1:]
        found = choosing.the_one(model, quant, repo)
        if found is not None:
            projector = choosing.projector_for(model, repo)
            variant = choosing.variant_of(found.label or quant, repo, found.files, projector)
            return ModelRef(model, variant), f"{repo.commit} of {repo.repo}"
        offered += [q.label for q in hub.grouped(repo.files)[0] if q.label and q.label not in offered]
    raise UnknownModel(
        unknown.message,
        cause=f"{said} has {', '.join(offered[:30])}." if offered else f"{said} has none of it either.",
        hint=f"`appliance models show {model.id} --hub` shows all with their sizes.",
    )
