"""After a suspend: does an engine still work?"""

from __future__ import annotations

import asyncio

from appliance.engines import Engine


async def works_within(engine: Engine, limit_s: float) -> bool:
    """One token within the limit. With requests inside, which may hold every slot, the engine's own limit
    counts, and their progress is as good as a token.
    """
    idle = engine.snapshot.slots_busy == 0
    try:
        async with asyncio.timeout(limit_s if idle else None):
            return await engine.probe()
    except TimeoutError:
        return False
