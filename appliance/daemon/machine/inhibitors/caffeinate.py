"""macOS: a power assertion by `caffeinate -i`, see caffeinate(8). `-w` ends it with this process."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from appliance.daemon.machine.inhibitors.child import Child
from appliance.daemon.machine.inhibitors.values import Hold, NotHeld

PROGRAM = "caffeinate"


@dataclass(frozen=True, slots=True)
class CaffeinateHold:
    """An assertion, as long as the child lives."""

    child: Child
    how: str = f"{PROGRAM} -i"
    but: str | None = None

    async def lost(self) -> str:
        return f"{PROGRAM}: {await self.child.ended()}"

    async def release(self) -> None:
        await self.child.end(by_signal=True)


class Caffeinate:
    """It says nothing when it holds: that it runs has to do."""

    async def take(self) -> Hold:
        program = shutil.which(PROGRAM)
        if program is None:
            raise NotHeld(f"{PROGRAM} is not found", lasting=True)
        return CaffeinateHold(await Child.start(program, "-i", "-w", str(os.getpid())))
