"""An engine that died under a request: its restart is waited for, since nothing of the reply was seen."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from appliance.engines import Endpoint
from appliance.gateway.failures import UpstreamFailed
from appliance.gateway.gate import Gate
from appliance.gateway.places import Place
from appliance.gateway.ports import Served

_LOOK_AGAIN_S = 0.02


def looks_dead(failure: UpstreamFailed) -> bool:
    """The connection went, before anything of a reply: so its process may have."""
    return failure.outcome in ("refused", "reset") and not failure.started and not failure.answered


async def loaded(gate: Gate, served: Served, place: Place) -> Endpoint | None:
    """Where the engine listens once it is ready; None when it won't be within `Limits.load_s`, or as soon as
    nothing may start on this machine."""
    with suppress(TimeoutError):
        async with gate.closing.bounds(waits=True), asyncio.timeout(gate.limits.load_s) as bound:
            with place.ends_when_stopped(bound):
                return await gate.local.ready(served)
    return None


async def restarted(gate: Gate, served: Served, dead: Endpoint, place: Place) -> Endpoint | None:
    """Where the next engine process listens; None when none comes, or when `dead` is not dead at all.

    The supervisor may hear of the end a little later than the request that ran into it.
    """
    clock = asyncio.get_running_loop().time
    noticed_by = clock() + gate.limits.notice_s
    while True:
        found = None if place.stopped else await loaded(gate, served, place)
        if found is None or found != dead:
            return found
        if clock() >= noticed_by:
            return None
        await asyncio.sleep(_LOOK_AGAIN_S)
