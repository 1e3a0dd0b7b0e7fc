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
        model, quant, _ = library.catalog.split(name, library.settings.aliases)
        if model is None or not quant or not repos_of(model):
            raise
        return await _pinned(library, model, quant, error, env)


async def _pinned(
    library: Library, model: Model, quant: str, unknown: UnknownModel, env: Mapping[str, str] | None
) -> ModelRef:
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
            written = await threads.run(None, writing.add_pin, library.paths, model.id, variant)
            log.info("%s:%s is pinned at %s of %s", model.id, written.quant, repo.commit, repo.repo)
            return library.catalog.find(f"{model.id}:{written.quant}") or ModelRef(model, written)
        offered += [q.label for q in hub.grouped(repo.files)[0] if q.label and q.label not in offered]
    raise UnknownModel(
        unknown.message,
        cause=f"{said} has {', '.join(offered[:30])}." if offered else f"{said} has none of it either.",
        hint=f"`appliance models show {model.id} --hub` shows all with their sizes.",
    )
