"""A signal that something changed, for any number of followers; it keeps no backlog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator


class Changes:
    """`notify` wakes every follower once; what happens while a follower is busy is one change to it."""

    def __init__(self) -> None:
        self._version = 0
        self._event = asyncio.Event()
        self._closed = False

    def notify(self) -> None:
        self._version += 1
        self._event.set()
        self._event = asyncio.Event()

    def close(self) -> None:
        """End every follower."""
        self._closed = True
        self.notify()

    async def follow(self) -> AsyncIterator[None]:
        """Yields after each change (or several); ends when closed."""
        seen = self._version
        while not self._closed:
            if seen == self._version:
                await self._event.wait()
            seen = self._version
            if not self._closed:
                yield None
