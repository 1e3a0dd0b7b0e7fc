"""The engine: stop, restart, its log."""

from __future__ import annotations

from appliance.daemon.commands.base import Area, Document
from appliance.errors import UsageError

MAX_LINES = 2_000


class EngineCommands(Area):
    """`/api/engine` and `/api/logs`."""

    async def engine(self, action: str) -> Document:
        serving = self._rooms.serving
        if action == "stop":
            await serving.unload()
        elif action == "restart":
            await serving.restart()
        else:
            raise UsageError(f"The engine can't {action!r}.", hint="stop or restart")
        return {"state": serving.snapshot.state}

    async def logs(self, after: int, limit: int) -> Document:
        lines = self._rooms.serving.lines(after, min(limit, MAX_LINES))
        return {
            "lines": [{"seq": line.seq, "line": line.line} for line in lines],
            "next": lines[-1].seq if lines else after,
        }
