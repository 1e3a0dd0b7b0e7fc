"""The one install of an engine build that a daemon carries out at a time: its task, and where it stands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from appliance.engines.builds.fetch import Step, Tell
from appliance.errors import ApplianceError, EngineError

Work = Callable[[Tell], Awaitable[Mapping[str, Any]]]
_NONE: dict[str, Any] = {"id": None, "state": "none", "step": None, "result": None, "error": None}


class Installing:
    """All methods belong to one event loop. Its end cancels the install, which then cleans up."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Mapping[str, Any]] | None = None
        self._step = Step("resolving")
        self._asked: tuple[str, str | None] | None = None
        self._id = 0

    def start(self, backend: str, source: str | None, work: Work) -> dict[str, Any]:
        """Begin it; the same wish again joins the one under way. Raises EngineError when another one is."""
        if self._task is not None and not self._task.done():
            if self._asked == (backend, source):
                return self.row()
            raise EngineError("Another engine build is being installed.", hint="Wait for its end.")
        self._asked, self._step, self._id = (backend, source), Step("resolving"), int(time.time() * 1000)
        self._task = asyncio.ensure_future(work(self._tell))
        self._task.add_done_callback(_seen)
        return self.row()

    def row(self) -> dict[str, Any]:
        """Where it stands: `state` is none, running, done, failed or cancelled."""
        task = self._task
        if task is None:
            return dict(_NONE)
        row: dict[str, Any] = _NONE | {"id": self._id, "state": "running", "step": asdict(self._step)}
        if not task.done():
            return row
        if task.cancelled():
            return row | {"state": "cancelled"}
        error = task.exception()
        if error is None:
            return row | {"state": "done", "result": dict(task.result())}
        return row | {"state": "failed", "error": _words(error)}

    async def cancel(self) -> dict[str, Any]:
        """End it and wait until nothing of it works any more. Of no effect when none is under way."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        return self.row()

    def _tell(self, step: Step) -> None:
        """From any thread: one reference is replaced."""
        self._step = step


def _seen(task: asyncio.Task[Mapping[str, Any]]) -> None:
    if not task.cancelled():
        task.exception()


def _words(error: BaseException) -> dict[str, Any]:
    if isinstance(error, ApplianceError):
        return error.to_json()
    return ApplianceError("The install failed unexpectedly.", cause=type(error).__name__).to_json()
