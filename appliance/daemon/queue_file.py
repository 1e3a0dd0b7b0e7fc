"""`downloads.json`: what was being fetched, so that the next daemon goes on with it. No address, no token."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from appliance.daemon.download import Download
from appliance.errors import ApplianceError
from appliance.store import Progress, layout, threads

log = logging.getLogger("appliance.downloads")
NAME = "downloads.json"
VERSION = 1
MAX_BYTES = 4 << 20
"""A larger file is not one of ours."""


@dataclass(frozen=True, slots=True)
class Queue:
    """What the file held."""

    downloads: tuple[Download, ...] = ()
    next_id: int = 1
    problem: str | None = None
    """What was wrong with the file, and where it lies now."""


class Keeper:
    """Writes the queue as it is, one write after the other. A full disk does not stop a transfer."""

    def __init__(self, file: Path, document: Callable[[], dict[str, Any]]) -> None:
        self._file = file
        self._document = document
        self._writing = asyncio.Lock()
        self._written: dict[str, Any] | None = None
        self._stale = False
        self._later: asyncio.Task[None] | None = None

    async def save(self) -> None:
        """On disk is what the queue is now, when this returns."""
        async with self._writing:
            found = self._document()
            if found == self._written:
                return
            try:
                await threads.run(None, layout.write_json, self._file, found)
                self._written = found
            except OSError as error:
                log.warning("the list of downloads can't be kept: %s", error.strerror)

    def save_soon(self) -> None:
        """Save what has changed by now, in the background."""
        self._stale = True
        if self._later is None or self._later.done():
            self._later = asyncio.ensure_future(self._save_later())

    async def _save_later(self) -> None:
        while self._stale:
            self._stale = False
            await self.save()

    async def close(self) -> None:
        """The last write."""
        if self._later is not None:
            await asyncio.gather(self._later, return_exceptions=True)
        await self.save()


def document(downloads: Iterable[Download], next_id: int) -> dict[str, Any]:
    """The file's contents. What is done or cancelled is of no use to the next daemon."""
    kept = [one for one in downloads if one.state not in ("done", "cancelled")]
    return {"v": VERSION, "next": next_id, "downloads": [_row(one) for one in kept]}


def read(file: Path) -> Queue:
    """The queue of the last daemon, empty when there is none. A file that can't be read is set aside."""
    for left in file.parent.glob(f".{file.name}.*"):
        left.unlink(missing_ok=True)  # half a write of a daemon that was killed; only one daemon runs
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        return _queue(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Queue()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Queue(problem=_set_aside(file, error))


def _queue(found: dict[str, Any]) -> Queue:
    if found["v"] != VERSION:
        raise ValueError(f"its version is {found['v']!r}")
    rows = tuple(_download(row) for row in found["downloads"])
    if len({row.id for row in rows}) < len(rows) or len({row.ref for row in rows}) < len(rows):
        raise ValueError("it names a download twice")
    highest = max((int(row.id) for row in rows), default=0)
    return Queue(rows, max(int(found["next"]), highest + 1))


def _row(one: Download) -> dict[str, Any]:
    p = one.progress
    return {
        "id": one.id, "ref": p.ref, "state": "running" if one.state == "waiting" else one.state,
        "limit": one.limit, "repair": one.repair, "file": p.file, "done": p.done, "total": p.total,
        "resumable": p.resumable, "error": one.error.to_json() if one.error else None,
    }  # fmt: skip


def _download(row: dict[str, Any]) -> Download:
    states: dict[str, Literal["waiting", "paused", "failed"]]
    states = {"running": "waiting", "paused": "paused", "failed": "failed"}
    limit, error = row["limit"], row["error"]
    progress = Progress(
        ref=str(row["ref"]), file=str(row["file"]), phase="waiting", done=int(row["done"]),
        total=None if row["total"] is None else int(row["total"]), rate=None, eta_s=None,
        resumable=bool(row["resumable"]), message=None,
    )  # fmt: skip
    return Download(
        id=str(int(row["id"])),
        progress=progress,
        state=states[row["state"]],
        limit=None if limit is None else int(limit),
        repair=bool(row["repair"]),
        error=None if error is None else _error(error),
    )


def _error(found: dict[str, Any]) -> ApplianceError:
    cause, hint = (None if found[name] is None else str(found[name]) for name in ("cause", "hint"))
    return ApplianceError(str(found["message"]), cause=cause, hint=hint)


def _set_aside(file: Path, error: Exception) -> str:
    kept = file.with_name(file.name + ".broken")
    why = (error.strerror or "it can't be read") if isinstance(error, OSError) else "it is broken"
    try:
        file.replace(kept)
        said = f"{file.name} can't be used ({why}); it is kept as {kept}, and the queue begins empty."
    except OSError:
        said = f"{file} can't be used ({why}); the queue begins empty."
    log.warning("%s (%s)", said, type(error).__name__)
    return said
