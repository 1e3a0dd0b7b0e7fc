"""The last look at the machine, for whoever wants to know what would fit here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from appliance.operations.machine.survey import Survey, glance
from appliance.paths import Paths
from appliance.settings import Settings

FRESH_S = 60.0
WAIT_S = 2.0
"""A list does not wait longer: without a look, what fits is unknown. The look goes on for the next one."""


class Looks:
    """One look at a time; it takes child processes and sensors, so it is kept for a minute."""

    def __init__(self, settings: Callable[[], Settings], paths: Paths | None = None) -> None:
        """Without `paths` installed builds are not looked for."""
        self._settings, self._paths = settings, paths
        self._looking: asyncio.Task[None] | None = None
        self._last: Survey | None = None
        self._at = 0.0

    async def recent(self, of_the_load: Survey | None) -> Survey | None:
        """That of the loaded model, when there is one: what the model takes was free then.

        None while nobody has looked yet and a look takes its time.
        """
        if of_the_load is not None:
            return of_the_load
        if self._last is None or time.monotonic() - self._at > FRESH_S:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.ensure_future(self._look())
            await asyncio.wait({self._looking}, timeout=WAIT_S)
        return self._last

    async def _look(self) -> None:
        self._last = await glance(self._settings(), self._paths)
        self._at = time.monotonic()

    async def close(self) -> None:
        """End a look that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
