"""The last look at the machine, for whoever wants to know what would fit here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from appliance.operations.survey import Survey, survey
from appliance.settings import Settings

FRESH_S = 60.0


class Looks:
    """One look at a time; it takes engines' processes and sensors, so it is kept for a minute."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._looking = asyncio.Lock()
        self._last: Survey | None = None
        self._at = 0.0

    async def recent(self, of_the_load: Survey | None) -> Survey:
        """That of the loaded model when there is one: what it took is counted as free there."""
        if of_the_load is not None:
            return of_the_load
        async with self._looking:
            if self._last is None or time.monotonic() - self._at > FRESH_S:
                self._last = await survey(self._settings())
                self._at = time.monotonic()
            return self._last
