"""How running requests end when the gateway stops: with an error that says so, not a cut connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from appliance.errors import Rejected

_RETRY_S = 10
"""A restart takes about so long."""


class Stopping(Rejected):
    """The gateway stops: nothing new begins, and what runs does not go on."""

    def __init__(self, why: str) -> None:
        super().__init__(why, reason="reject.unavailable", http_status=503, retry_after_s=_RETRY_S)


class Closing:
    """Knows what is under way, so that it can be ended in an orderly way."""

    def __init__(self) -> None:
        self._why = ""
        self._end_at: float | None = None
        self._clocks: dict[asyncio.Timeout, bool] = {}
        """What is under way -> whether it only waits."""

    @property
    def begun(self) -> bool:
        """The gateway takes nothing new any more."""
        return self._end_at is not None

    def begin(self, why: str, grace_s: float) -> None:
        """Refuse what is new or still waits, and end what runs in `grace_s` seconds.

        Called again it can bring that end nearer only.
        """
        now = asyncio.get_running_loop().time()
        end_at = now + max(0.0, grace_s)
        self._why = self._why or why
        self._end_at = end_at if self._end_at is None else min(self._end_at, end_at)
        for clock, waits in self._clocks.items():
            if not clock.expired():
                clock.reschedule(now if waits else self._end_at)

    def check(self) -> None:
        """Raises Stopping once it has begun."""
        if self.begun:
            raise Stopping(self._why)

    @asynccontextmanager
    async def bounds(self, *, waits: bool = False) -> AsyncIterator[None]:
        """Around work that must end with the gateway; `waits`: nothing is lost if it ends at once.

        Raises Stopping.
        """
        if waits:
            self.check()
        clock = asyncio.timeout_at(self._end_at)
        try:
            async with clock:
                self._clocks[clock] = waits
                try:
                    yield
                finally:
                    del self._clocks[clock]
        except TimeoutError:
            if clock.expired():
                raise Stopping(self._why) from None
            raise
