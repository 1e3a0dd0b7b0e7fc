"""What an engine is asked to serve, from a plan and the files of its model; and the proof of these files."""

from __future__ import annotations

from pathlib import Path

from appliance.catalog import ModelRef, Role
from appliance.engines import Launch
from appliance.operations.models import Library
from appliance.operations.special import adapters
from appliance.operations.special.loading import NOTHING, Special
from appliance.planning import Plan
from appliance.store import Stored


def make_launch(
    ref: ModelRef, stored: Stored, plan: Plan, special: Special = NOTHING, *, tight: bool = False
) -> Launch:
    """The launch of this model by this plan.

    `special`: adapters, what the model is for, and the draft model that takes the place of its own.
    `tight`: a larger plan ran out of memory before.
    """
    mode, draft = special.mode, special.draft
    return Launch(
        ref.ref,
        stored.main,
        plan,
        mode.embedding,
        _file(stored, "mmproj"),
        _file(stored, "draft") if draft is None else draft.main,
        tight=tight,
        reranking=mode.reranking,
        pooling=mode.pooling,
        lora=special.adapters,
        draft_ref=None if draft is None else draft.ref,
    )


async def prove(library: Library, ref: ModelRef, launch: Launch) -> None:
    """Before each process, also the one after a crash: all its files are still what was pinned or stated.

    Raises ModelMissing and NotVerified.
    """
    stored = await library.require(ref)
    if launch.draft_ref is not None:
        await library.require(library.resolve(launch.draft_ref))
    own = {file.path for file in stored.files}
    await adapters.prove(library.paths, [one for one in launch.lora if one.path not in own])


def _file(stored: Stored, role: Role) -> Path | None:
    """The first file of this role. A draft model in parts is named by its first one, as every model."""
    return next((file.path for file in stored.files if file.role == role), None)
