"""Downloads as the control plane shows them: one task per model, a bounded list of the finished ones."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError, UnknownModel
from appliance.operations.models import Library
from appliance.store import Progress, Stored

log = logging.getLogger("appliance.downloads")
KEPT_FINISHED = 20


@dataclass(frozen=True, slots=True)
class Download:
    """One transfer and where it stands."""

    id: str
    progress: Progress
    error: ApplianceError | None = None
    finished: bool = False

    def to_json(self) -> dict[str, Any]:
        p = self.progress
        return {
            "id": self.id, "ref": p.ref, "file": p.file, "phase": p.phase, "done": p.done, "total": p.total,
            "rate": p.rate, "eta_s": p.eta_s, "resumable": p.resumable, "finished": self.finished,
            "message": self.error.message if self.error else p.message,
            "error": self.error.to_json() if self.error else None,
        }  # fmt: skip


class Downloads:
    """Starts, follows and cancels transfers. Each has one task; what arrived is kept when it is cancelled."""

    def __init__(self, library: Library, on_change: Callable[[], None] = lambda: None) -> None:
        self._library = library
        self._on_change = on_change
        self._ids = itertools.count(1)
        self._downloads: dict[str, Download] = {}
        self._tasks: dict[str, asyncio.Task[Stored]] = {}

    @property
    def snapshot(self) -> tuple[Download, ...]:
        return tuple(self._downloads.values())

    def running(self) -> frozenset[str]:
        """The refs that are being fetched now."""
        return frozenset(self._downloads[key].progress.ref for key in self._tasks)

    def start(self, ref: ModelRef) -> str:
        """Begin to fetch a model, or give the id of the transfer that already runs for it."""
        for key in self._tasks:
            if self._downloads[key].progress.ref == ref.ref:
                return key
        key = str(next(self._ids))
        first = Progress(
            ref=ref.ref, file="", phase="waiting", done=0, total=None, rate=None, eta_s=None,
            resumable=False, message=None,
        )  # fmt: skip
        self._put(Download(key, first))
        task = asyncio.create_task(self._library.pull(ref, lambda p: self._progress(key, p)))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._done(key, done))
        return key

    async def fetch(self, ref: ModelRef, on_progress: Callable[[Download], None]) -> Stored:
        """Start (or join) a transfer and follow it to its end."""
        key = self.start(ref)
        task = self._tasks[key]
        shown: Download | None = None
        while not task.done():
            if self._downloads[key] is not shown:
                shown = self._downloads[key]
                on_progress(shown)
            await asyncio.wait({task}, timeout=0.2)
        return await task

    def cancel(self, key: str) -> None:
        """Stop a transfer; the partial file stays. Raises UnknownModel for an id that is not here."""
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()
        elif key not in self._downloads:
            raise UnknownModel(f"There is no download {key}.")

    async def close(self) -> None:
        """Stop all transfers and wait until their files are closed."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _progress(self, key: str, progress: Progress) -> None:
        self._put(replace(self._downloads[key], progress=progress))

    def _done(self, key: str, task: asyncio.Task[Stored]) -> None:
        self._tasks.pop(key, None)
        download = self._downloads[key]
        if task.cancelled():
            stopped = replace(download.progress, phase="failed", message=_stopped(download.progress))
            self._put(replace(download, progress=stopped, finished=True))
        elif (error := task.exception()) is not None:
            known = error if isinstance(error, ApplianceError) else _unexpected(error)
            failed = replace(download.progress, phase="failed")
            self._put(replace(download, progress=failed, error=known, finished=True))
        else:
            self._put(replace(download, progress=replace(download.progress, phase="done"), finished=True))
        finished = [key for key, one in self._downloads.items() if one.finished]
        for old in finished[:-KEPT_FINISHED]:
            del self._downloads[old]

    def _put(self, download: Download) -> None:
        self._downloads[download.id] = download
        self._on_change()


def _stopped(progress: Progress) -> str:
    if progress.resumable:
        return "stopped; what has arrived is kept, and a new start goes on from there"
    return "stopped; this source starts over"


def _unexpected(error: BaseException) -> ApplianceError:
    log.error("a download failed unexpectedly", exc_info=error)
    return ApplianceError(
        "The download failed.", cause=f"{type(error).__name__}", hint="See the daemon's log."
    )
