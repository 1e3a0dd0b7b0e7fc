"""A model that is here with all that it is started with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.catalog import ModelRef
from appliance.engines import Adapter
from appliance.errors import ApplianceError
from appliance.operations.models import Library
from appliance.operations.plans.drafts import planned_with, served_with
from appliance.operations.plans.headers import of_stored
from appliance.operations.plans.subject import Subject
from appliance.operations.special import adapters
from appliance.operations.special.overrides import override_of
from appliance.operations.use import PLAIN, Mode
from appliance.planning import Reason
from appliance.store import Stored


@dataclass(frozen=True, slots=True)
class Special:
    """Beyond the model's own files."""

    mode: Mode = PLAIN
    adapters: tuple[Adapter, ...] = ()
    draft: Stored | None = None
    """The draft model that takes the place of the model's own."""


NOTHING = Special()


async def for_load(
    library: Library, ref: ModelRef, stored: Stored, draft: str | None
) -> tuple[Subject, Special]:
    """What is planned and started of a model that is here. `draft`: the one that was asked for.

    Raises what headers and `adapters` raise, and what a draft model that was asked for ends with; one of the
    settings that can't be used is left out, with a reason in the plan.
    """
    subject = await asyncio.to_thread(of_stored, library, stored, ref.model)
    own, outside = adapters.of_catalog(ref, stored), adapters.of_settings(library.settings, ref)
    await adapters.prove(library.paths, outside)
    subject = await _adapted(subject, ref, outside)
    helper = None
    wanted = draft or override_of(library.settings, ref).draft
    if wanted:
        try:
            subject, helper = await served_with(library, subject, wanted)
        except ApplianceError as error:
            if draft is not None:
                raise
            subject = _left_out(subject, wanted, error)
    return subject, Special(subject.mode, (*own, *outside), helper)


async def for_plan(
    library: Library, subject: Subject, draft: str | None, *, env: Mapping[str, str] | None = None
) -> Subject:
    """The same for a plan that nothing is started from: headers are enough, and nothing is hashed.

    Raises as `for_load`, and what looking for the header of a draft model that was asked for raises.
    """
    ref = None if subject.ref is None else library.catalog.find(subject.ref)
    if ref is None:
        return await planned_with(library, subject, draft, env=env)
    subject = await _adapted(subject, ref, adapters.of_settings(library.settings, ref))
    wanted = draft or override_of(library.settings, ref).draft
    try:
        return await planned_with(library, subject, wanted or None, env=env)
    except ApplianceError as error:
        if draft is not None:
            raise
        return _left_out(subject, wanted, error)


async def _adapted(subject: Subject, ref: ModelRef, outside: Sequence[Adapter]) -> Subject:
    own = adapters.as_pinned(ref, subject.adapters)
    return replace(subject, adapters=(*own, *await adapters.planned(subject.header, subject.label, outside)))


def _left_out(subject: Subject, draft: str, error: ApplianceError) -> Subject:
    """Without the draft model of the settings, and with why: it only makes things faster."""
    why = " ".join(part for part in (error.message, error.cause, error.hint) if part)
    text = f"the draft model {draft} of the settings is left out: {why}"
    return replace(subject, notes=(*subject.notes, Reason("draft_left_out", text)))
