"""A download that somebody waits for: `up` with a model that is not here yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from appliance.catalog import ModelRef
from appliance.daemon.download import Download
from appliance.daemon.downloads import Downloads
from appliance.errors import DownloadError

LOOK_S = 1.0


async def fetch(downloads: Downloads, ref: ModelRef, on_change: Callable[[Download], None]) -> None:
    """Start (or join) a transfer, before all that wait, and follow it to its end.

    Raises what it ended with. A cancel ends a transfer that this call began; what has arrived is kept.
    """
    started = await downloads.start(
        ref.ref, total=ref.variant.size, resumable=ref.variant.resumable, urgent=True
    )
    try:
        row = await _end(downloads, started.id, on_change)
    except asyncio.CancelledError:
        if started.how == "new":
            await downloads.cancel(started.id)
        raise
    if row.state != "done":
        raise row.error or DownloadError(
            f"The download of {ref.ref} was cancelled.", hint="Start it again; it goes on."
        )


async def _end(downloads: Downloads, key: str, on_change: Callable[[Download], None]) -> Download:
    shown: Download | None = None
    while True:
        row = downloads.row(key)
        if row is not shown:
            shown = row
            on_change(row)
        if row.finished:
            return row
        if not await downloads.moved(LOOK_S):
            raise DownloadError(f"The download of {row.ref} was stopped.", hint="Start it again; it goes on.")
