"""The buffers of a real load, without what comes after it: no warm-up, no request."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping

from appliance.engines import Build, Launch, LogRing
from appliance.engines.adapters import command, listen_at
from appliance.engines.logparse import LoadReader
from appliance.engines.process import spawn, unlink
from appliance.paths import Paths

_ALLOCATED = "sched_reserve: reserve took"


async def buffers_of(
    here: Build, launch: Launch, paths: Paths, timeout_s: float = 60.0
) -> Mapping[str, Mapping[str, float]]:
    """MiB by buffer and purpose, once all are allocated."""
    reader, loop, done = LoadReader(), asyncio.get_running_loop(), asyncio.Event()

    def feed(line: str) -> None:
        reader.feed(line)
        if _ALLOCATED in line:
            loop.call_soon_threadsafe(done.set)

    listen = listen_at(paths, secrets.token_hex(4))
    marker, key = secrets.token_hex(16), secrets.token_hex(16)
    what = await command(here, launch, listen, key=key, marker=marker, warmup=False)
    child = await spawn(what, marker=marker, ring=LogRing(200), on_line=feed, secret=key)
    try:
        async with asyncio.timeout(timeout_s):
            await done.wait()
    finally:
        child.kill()
        await child.end(1.0)
        unlink(listen.socket)
    return reader.buffers
