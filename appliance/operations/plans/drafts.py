"""A draft model that was asked for, in place of the model's own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from appliance.errors import UsageError
from appliance.operations.files import file_or_name
from appliance.operations.models import Library
from appliance.operations.plans.headers import Subject, of_stored, subject_of
from appliance.planning.memory.extras import draft_mismatch
from appliance.store import Stored


async def planned_with(
    library: Library, subject: Subject, draft: str | None, *, env: Mapping[str, str] | None = None
) -> Subject:
    """For a plan: the draft model may be anything that has a header. Raises as `subject_of`, and UsageError
    for one that can't go with the model."""
    if draft is None:
        return subject
    return _with(subject, await subject_of(library, draft, env=env))


async def served_with(library: Library, subject: Subject, draft: str) -> tuple[Subject, Stored]:
    """For a load: the draft model must be here and verified. Also its files.

    Raises UnknownModel, ModelMissing, NotVerified, GgufError, and UsageError for a file that nobody verified
    and for a model that can't go with this one.
    """
    if draft.startswith(("hf:", "http:", "https:")) or file_or_name(draft) is not None:
        raise UsageError(
            "A draft model is served from the models that are here, as every model.",
            hint=f"`appliance models add {draft}` adds it, and `appliance models pull` fetches it.",
        )
    stored = await library.require(library.resolve(draft))
    return _with(subject, await asyncio.to_thread(of_stored, library, stored, None)), stored


def _with(subject: Subject, helper: Subject) -> Subject:
    if subject.mode.alone:
        raise UsageError(f"{subject.label} writes no text, so nothing can run ahead of it.")
    why = draft_mismatch(subject.header, helper.header)
    if why is not None:
        raise UsageError(
            f"{helper.label} can't run ahead of {subject.label}.",
            cause=f"{why[:1].upper()}{why[1:]}.",
            hint="A draft model has to be a small one of the same family.",
        )
    return replace(subject, draft=helper.header, draft_parts=helper.parts)
