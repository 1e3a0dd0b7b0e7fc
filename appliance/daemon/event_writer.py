"""Writes events into the journal, one after the other, so that nobody who notes one waits for the disk."""

from __future__ import annotations

import asyncio
import logging

from appliance.journal import Journal

log = logging.getLogger("appliance.daemon")
MOST_WAITING = 256


class EventWriter:
    """One task. An event that comes while too many wait is in the log only."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._waiting: asyncio.Queue[tuple[str, str | None, str, str | None]] = asyncio.Queue(MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="events")

    def note(self, kind: str, ref: str | None, text: str, detail: str | None = None) -> None:
        """Have it written."""
        try:
            self._waiting.put_nowait((kind, ref, text, detail))
        except asyncio.QueueFull:
            log.warning("the event %s of %s is not in the journal: too many wait", kind, ref)

    async def close(self) -> None:
        """Write what waits, and end."""
        if self._task is None:
            return
        await self._waiting.join()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            kind, ref, text, detail = await self._waiting.get()
            try:
                await self._journal.note(kind, ref, text, detail)
            except Exception:
                log.exception("an event could not be written")  # the next one may be
            finally:
                self._waiting.task_done()
