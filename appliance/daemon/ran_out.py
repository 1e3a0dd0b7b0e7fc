"""From an engine that ran out of memory while it served to what the next load has to know. Pure."""

from __future__ import annotations

import time

from appliance.daemon.loading import Crash, Steps, begun_anew
from appliance.daemon.served import ServingSnapshot
from appliance.engines import EngineSnapshot
from appliance.errors import EngineFailed

STEADY_S = 600.0
"""A plan that served this long was not too large from the start: the count of smaller ones begins anew."""


def crash_of(serving: ServingSnapshot, engine: EngineSnapshot, steps: Steps | None) -> Crash | None:
    """None when it was not for lack of memory, or not enough is known to plan with less."""
    plan, looked = serving.plan, serving.survey
    if engine.out_of_memory is None or serving.ref is None or plan is None or looked is None or steps is None:
        return None
    failure = EngineFailed(
        engine.error or "The engine ran out of memory.",
        cause=engine.cause,
        hint=engine.hint,
        lines=engine.last_lines,
        out_of_memory=engine.out_of_memory,
    )
    steady = engine.ready_at is not None and time.time() - engine.ready_at > STEADY_S
    return Crash(plan, begun_anew(steps) if steady else steps, failure, looked.build())
