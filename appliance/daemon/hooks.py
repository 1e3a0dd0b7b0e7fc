"""What others may do around an engine's life, and how a load ends that nobody waits for."""

from __future__ import annotations

from typing import Protocol

from appliance.catalog import ModelRef
from appliance.engines import Build, Engine, Launch
from appliance.errors import EngineUnavailable


class Hooks(Protocol):
    """What goes on around an engine's life. None of it raises, and all has an end."""

    async def prepared(self, build: Build, launch: Launch, ref: ModelRef) -> Launch:
        """The launch as it is started."""
        ...

    async def started(self, engine: Engine, ref: ModelRef) -> None:
        """It is ready, and no request has reached it."""
        ...

    async def stopping(self, engine: Engine, ref: ModelRef) -> None:
        """It is about to be stopped as planned, and is still ready."""
        ...


class NobodyWaits(EngineUnavailable):
    """A load was given up, since nobody waits for it any more."""
