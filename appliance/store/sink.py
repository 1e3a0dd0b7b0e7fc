"""Writes and hashes in a thread while the next bytes are read from the network.

The reader is hardly ever kept waiting: when a connection breaks, aiohttp drops what nobody has read yet, and
a line that breaks often would then make no progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from appliance.store import threads
from appliance.store.partfile import PartFile

_BATCH = 1 << 20
_BATCH_S = 0.5
_BACKLOG = 16 << 20


class Sink:
    """Takes bytes in order; `begin` runs in the thread before the first of them is written."""

    def __init__(self, part: PartFile, begin: Callable[[], None], moved: Callable[[int], None]) -> None:
        self._part = part
        self._moved = moved
        self._pending: list[bytes] = []
        self._waiting = 0
        self._since = asyncio.get_running_loop().time()
        self._writer = asyncio.ensure_future(asyncio.to_thread(begin))

    async def put(self, chunk: bytes) -> None:
        """Take a chunk; waits only when the disk is far behind. Raises what the writing raised."""
        self._pending.append(chunk)
        self._waiting += len(chunk)
        now = asyncio.get_running_loop().time()
        if self._writer.done() and (self._waiting >= _BATCH or now - self._since >= _BATCH_S):
            self._writer.result()
            self._since = now
            self._writer = asyncio.ensure_future(self._write())
        elif self._waiting >= _BACKLOG:
            await threads.settled(self._writer)

    async def close(self) -> None:
        """Write the rest, through any cancel. Raises what the writing raised."""
        await threads.settled(asyncio.ensure_future(self._finish()))

    async def _finish(self) -> None:
        await self._writer
        await self._write()

    async def _write(self) -> None:
        batch, self._pending, self._waiting = self._pending, [], 0
        if batch:
            await asyncio.to_thread(self._part.feed, batch)
            self._moved(self._part.offset)
