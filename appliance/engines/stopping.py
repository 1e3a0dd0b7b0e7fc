"""Work that a stop cuts short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def unless_stopped(work: Awaitable[None], stop: asyncio.Event) -> bool:
    """Await `work`, but no longer than until `stop` is set. True when it was done; raises what it raises."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return False
        task.result()
        return True
    finally:
        for one in (task, stopped):
            one.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
