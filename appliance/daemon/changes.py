"""A signal that something changed, for any number of followers; it keeps no backlog."""

from __future__ import annotations

import asyncio


class Changes:
    """`notify` wakes everyone who waits; who is busy meanwhile looks again after its time limit."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.closed = False

    def notify(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    def close(self) -> None:
        """Let every follower go."""
        self.closed = True
        self.notify()

    async def next(self, timeout_s: float) -> bool:
        """Wait for a change, at most `timeout_s`. True: look again. False: closed, there will be no more."""
        if not self.closed:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
            except TimeoutError:
                pass
        return not self.closed
