"""What the system offers to keep a machine awake."""

from __future__ import annotations

import sys

from appliance.daemon.machine.inhibitors.caffeinate import Caffeinate
from appliance.daemon.machine.inhibitors.logind import Logind
from appliance.daemon.machine.inhibitors.values import Hold, Inhibitor, NotHeld
from appliance.daemon.machine.inhibitors.windows import ExecutionState

__all__ = ["Hold", "Inhibitor", "NotHeld", "inhibitor"]


class _Unknown:
    def __init__(self, platform: str) -> None:
        self._platform = platform

    async def take(self) -> Hold:
        raise NotHeld(f"no way to keep {self._platform} awake is known here", lasting=True)


def inhibitor(platform: str = sys.platform) -> Inhibitor:
    """The one of this system."""
    if platform.startswith("linux"):
        return Logind()
    if platform == "darwin":
        return Caffeinate()
    return ExecutionState() if platform == "win32" else _Unknown(platform)
