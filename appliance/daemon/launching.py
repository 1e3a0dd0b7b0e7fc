"""What an engine is asked to serve, from a plan and the files of its model."""

from __future__ import annotations

from pathlib import Path

from appliance.catalog import ModelRef
from appliance.engines import Launch
from appliance.planning import Plan
from appliance.store import Stored


def make_launch(
    ref: ModelRef, stored: Stored, plan: Plan, *, draft: Path | None = None, tight: bool = False
) -> Launch:
    """The launch of this model by this plan.

    `draft` takes the place of the model's own draft model. `tight`: a larger plan ran out of memory before.
    """
    mmproj, own_draft = (
        next((file.path for file in stored.files if file.role == role), None) for role in ("mmproj", "draft")
    )
    return Launch(
        ref.ref,
        stored.main,
        plan,
        "embedding" in ref.model.use,
        mmproj,
        draft or own_draft,
        tight=tight,
    )
