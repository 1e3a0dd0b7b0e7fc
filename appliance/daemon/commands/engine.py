"""The engine: stop, restart, its log."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.daemon.commands.base import Area, Document
from appliance.errors import UsageError
from appliance.text import clean_line

MAX_LINES = 2_000


class EngineCommands(Area):
    """`/api/engine` and `/api/logs`."""

    async def engine(self, action: str) -> Document:
        """`stop` unloads all models, and requests load none until a person does; `restart` loads the default
        one again with what is free now.
        """
        pool = self._rooms.pool
        if action == "stop":
            await pool.halt()
        elif action == "restart":
            await pool.restart()
        else:
            raise UsageError(f"The engine can't {action!r}.", hint="stop or restart")
        return {"state": pool.default.serving.snapshot.state if pool.default is not None else "absent"}

    async def logs(self, after: int, limit: int, model: str, newest: bool) -> Document:
        """Of one model's engines, or of all; each line says of which when there are several."""
        book, most = self._rooms.logs, min(limit, MAX_LINES)
        engine = _engine_named(model, book.engines) if model else None
        lines = book.newest(most, engine) if newest else book.lines(after, most, engine)
        several = len(book.engines) > 1
        return {
            "lines": [
                {"seq": line.seq, "line": line.line, "engine": line.engine if several else None}
                for line in lines
            ],
            "next": lines[-1].seq if lines else after,
            "engines": list(book.engines),
        }


def _engine_named(model: str, known: Sequence[str]) -> str:
    """The engine with a log that `model` means: its ref, or its id when that is clear. Raises UsageError."""
    found = [name for name in known if name == model] or [
        name for name in known if name.partition(":")[0] == model
    ]
    if len(found) == 1:
        return found[0]
    name = clean_line(model, 100)
    raise UsageError(
        f"{name!r} means several engines." if found else f"No engine of {name!r} has a log.",
        hint=f"Logs are here of: {', '.join(found or known)}." if known else "No engine has run yet.",
    )
