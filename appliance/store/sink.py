"""Writes and hashes in a thread while the next bytes are read from the network.

The reader is hardly ever kept waiting: when a connection breaks, aiohttp drops what nobody has read yet, and
a line that breaks often would then make no progress.
"""

from __future__ import annotations

import asyncio
import contextlib
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
        self._begin = begin
        self._moved = moved
        self._pending: list[bytes] = []
        self._waiting = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._closing = False
        self._writer = asyncio.create_task(self._run())

    async def put(self, chunk: bytes) -> None:
        """Take a chunk; waits only when the disk is far behind. Raises what the writing raised."""
        self._pending.append(chunk)
        self._waiting += len(chunk)
        if self._waiting >= _BATCH:
            self._wake.set()
        if self._writer.done():
            self._writer.result()
        elif self._waiting >= _BACKLOG:
            self._room.clear()
            await self._room.wait()

    async def close(self) -> None:
        """Write the rest, through any cancel. Raises what the writing raised."""
        self._closing = True
        self._wake.set()
        await threads.settled(self._writer)

    async def _run(self) -> None:
        try:
            await asyncio.to_thread(self._begin)
            while self._pending or not self._closing:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_BATCH_S):
                        await self._wake.wait()
                batch, self._pending, self._waiting = self._pending, [], 0
                if not self._closing:
                    self._wake.clear()
                self._room.set()
                if batch:
                    await asyncio.to_thread(self._part.feed, batch)
                    self._moved(self._part.offset)
        finally:
            self._room.set()  # a reader that waits must see the error
