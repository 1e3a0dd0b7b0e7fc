"""The daemon itself: status, events, journal, settings, the end."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import asdict

from appliance import settings as settings_room
from appliance.daemon.commands.base import Area, Document
from appliance.errors import UsageError
from appliance.journal.timeline import CPU, GPU, MACHINE, moment_of, to_line
from appliance.operations import config
from appliance.text import clean_line

RESTART_KEYS = ("server.", "downloads.")
"""Settings that a running daemon can't take over."""
MOST_LINES = 5_000
"""Of the timeline in one answer, since it is made while requests run."""


class HouseCommands(Area):
    """`/api/status`, `/api/events`, `/api/journal`, `/api/settings` and `/api/shutdown`."""

    async def status(self) -> Document:
        document: Document = await self._status()
        return document

    async def changed(self, timeout_s: float) -> bool:
        return await self._rooms.changes.next(timeout_s)

    async def journal(self, limit: int) -> Document:
        return {"requests": [row.to_json() for row in await self._rooms.journal.recent(limit)]}

    async def journal_events(self, limit: int, after: int) -> Document:
        found = await self._rooms.journal.events(limit, after)
        return {
            "events": [event.to_json() for event in found],
            "next": found[-1].number if found else after,
        }

    async def history(self, seconds: int, step: int | None, device: str | None) -> Document:
        """The figures of all devices, or of one. Raises UsageError for one that there never was."""
        await self._rooms.recorder.flush()
        found = await self._rooms.journal.history(time.time(), seconds, step, device)
        if device is not None and not found.devices:
            here = {f"{GPU}{gpu.id}" for gpu in self._rooms.monitor.snapshot.gpus}
            known = sorted({MACHINE, CPU, *here, *await self._rooms.journal.devices()})
            if device not in known:
                raise UsageError(
                    f"{clean_line(device, 80)} is no device here.", hint=f"Known are {', '.join(known)}."
                )
        return found.to_json()

    async def timeline(self, seconds: int, after: float | None, limit: int) -> Document:
        """The newest entries of the last seconds, or the first ones after a moment.

        `more` means that `next` as `after` gives more now: never after the newest.
        """
        await self._rooms.recorder.flush()
        now = time.time()
        since = now - seconds if after is None else math.nextafter(after, math.inf)
        most = min(limit, MOST_LINES)
        page = await self._rooms.journal.timeline(since, now, most, newest=after is None)
        last = moment_of(page.entries[-1]) if page.entries else after
        lines = await asyncio.to_thread(lambda: [to_line(entry) for entry in page.entries])
        return {"lines": lines, "more": after is not None and page.more, "next": last}

    async def settings(self) -> Document:
        found = await asyncio.to_thread(settings_room.entries, self._rooms.paths.config_file)
        return {"settings": [entry.to_json() for entry in found]}

    async def set_setting(self, body: Document) -> Document:
        key, value = str(body.get("key") or ""), body.get("value")
        raw = value if isinstance(value, str) else settings_room.text_of(value)
        entry = await asyncio.to_thread(config.set_value, self._rooms.paths.config_file, key, raw)
        await self._rooms.reload_settings()
        return entry.to_json() | {"restart": key.startswith(RESTART_KEYS)}

    async def forget_prompts(self) -> Document:
        """Remove all saved prompts; what engines hold now is not saved when they stop."""
        return asdict(await self._rooms.prompts.clear())

    async def shutdown(self) -> Document:
        self._stop()
        return {"stopping": True}
