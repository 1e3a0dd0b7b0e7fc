"""What is served now, as everyone else sees it."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.catalog import ModelRef
from appliance.daemon.load_clock import LoadTimes
from appliance.engines import EngineSnapshot, EngineState
from appliance.errors import ApplianceError
from appliance.operations.lessons.load_times import Estimate
from appliance.operations.machine.survey import Note, Survey
from appliance.planning import Plan


@dataclass(frozen=True, slots=True)
class ServingSnapshot:
    """What is served now."""

    ref: ModelRef | None = None
    state: EngineState = "absent"
    plan: Plan | None = None
    engine: EngineSnapshot | None = None
    survey: Survey | None = None
    error: ApplianceError | None = None
    """Why the state is `failed`, or `absent` without a person's wish."""
    since: float = 0.0
    """Unix time of the last change of state."""
    loaded_since: float | None = None
    """Unix time of the load that this comes from."""
    replanned: Note | None = None
    """Why the plan was made anew while it served."""
    load_estimate: Estimate | None = None
    """How long the load takes as far as that can be told before; None: nothing is known of it."""
    load_times: LoadTimes | None = None
    """What the last load took."""
