"""Downloads by id: one row per model, a few transfers at a time, the others wait for their turn.

Each running transfer has one task. What the rows say is kept in `downloads.json` (`queue_file.py`), so that a
daemon that died goes on where it was; the bytes themselves are the store's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from appliance.daemon import queue_file
from appliance.daemon.changes import Changes
from appliance.daemon.download import Download
from appliance.errors import ApplianceError, DownloadError, UnknownModel
from appliance.store import OnProgress, Progress, Repaired

log = logging.getLogger("appliance.downloads")
MAX_RUNNING = 2
"""Transfers at a time: more would share the same line. What `up` waits for does not wait for its turn."""
MAX_ACTIVE = 100
KEPT_FINISHED = 20
STOP_S = 30.0
"""So long a pause or a cancel waits until the transfer's files are closed."""
NOTIFY_S = 0.5
"""Progress alone wakes the followers this often; a change of state does at once."""

Work = Callable[[Download, OnProgress], Awaitable[Repaired | None]]
"""Carries a download out; a repair says what it came to."""
How = Literal["new", "joined", "resumed"]


@dataclass(frozen=True, slots=True)
class Started:
    """The row that a start led to: `joined` was on its way already, `resumed` was paused."""

    id: str
    how: How


@dataclass(slots=True)
class _Job:
    """A row, its task, and what becomes of it when the task is cancelled."""

    row: Download
    urgent: bool = False
    wanted: Literal["run", "pause", "cancel"] = "run"
    task: asyncio.Task[Repaired | None] | None = None


class Downloads:
    """Starts, pauses, resumes and cancels transfers. What arrived is kept, whatever happens."""

    def __init__(self, work: Work, file: Path, on_change: Callable[[], None] = lambda: None) -> None:
        self._work = work
        self._file = file
        self._on_change = on_change
        self._moves = Changes()
        self._jobs: dict[str, _Job] = {}
        self._line: list[str] = []
        """Ids that wait for their turn."""
        self._next = 1
        self._open = False
        self._told = 0.0
        self._keeper = queue_file.Keeper(file, self._document)
        self.problem: str | None = None
        """What was wrong with the queue's file, for people."""

    @property
    def snapshot(self) -> tuple[Download, ...]:
        return tuple(job.row for job in self._jobs.values())

    def running(self) -> frozenset[str]:
        """The refs that are being fetched now, or wait for their turn."""
        return frozenset(one.ref for one in self.snapshot if one.state in ("running", "waiting"))

    async def restore(self) -> None:
        """Read what the last daemon left; nothing is fetched before `begin`."""
        found = await asyncio.to_thread(queue_file.read, self._file)
        self._next, self.problem = found.next_id, found.problem
        for row in found.downloads:
            self._jobs[row.id] = _Job(row)
            if row.state == "waiting":
                self._line.append(row.id)
        self._number()

    def begin(self) -> None:
        """Let transfers run."""
        self._open = True
        self._pump()

    async def start(
        self,
        ref: str,
        *,
        total: int | None = None,
        resumable: bool = True,
        limit: int | None = None,
        urgent: bool = False,
        repair: bool = False,
    ) -> Started:
        """Fetch `id:QUANT`: a new row, or the one that is here for it, resumed when it had stopped.

        `limit` (bytes per second) and `repair` act when it is not running already. Raises DownloadError when
        too many wait.
        """
        job = next((job for job in self._jobs.values() if job.row.ref == ref), None)
        how: How = "new"
        if job is None:
            job = self._new(ref, total, resumable)
        elif job.row.state == "paused" or (job.task is not None and job.wanted == "pause"):
            how = "resumed"
        elif job.row.state in ("waiting", "running") and job.wanted == "run":
            how = "joined"
        job.urgent = job.urgent or urgent
        if how != "joined":
            job.row = replace(job.row, limit=limit, repair=repair, repaired=None)
        elif repair and job.row.state == "waiting":
            job.row = replace(job.row, repair=True)
        self._go_on(job)
        await self._keeper.save()
        return Started(job.row.id, how)

    def row(self, key: str) -> Download:
        """Raises UnknownModel for an id that is not here."""
        return self._job(key).row

    async def moved(self, timeout_s: float) -> bool:
        """Wait until any row changed, at most so long. False: closed, nothing moves any more."""
        return await self._moves.next(timeout_s)

    async def pause(self, key: str) -> Download:
        """Stop a transfer until it is resumed; no byte comes any more once this returns."""
        job = self._job(key)
        if job.row.state == "waiting":
            self._line.remove(key)
            self._put(job, job.row.turned("paused"))
        elif job.row.state == "running":
            await self._stop(job, "pause")
        self._pump()
        await self._keeper.save()
        return job.row

    async def resume(self, key: str) -> Download:
        """Go on with one that is paused, has failed or was cancelled."""
        job = self._job(key)
        if job.row.state != "done":
            self._go_on(job)
        await self._keeper.save()
        return job.row

    async def cancel(self, key: str) -> None:
        """Stop a transfer and leave it; the partial file stays. A finished row goes from the list."""
        job = self._job(key)
        if job.row.finished:
            del self._jobs[key]
            self._tell(at_once=True)
        elif job.row.state == "running":
            await self._stop(job, "cancel")
        else:
            self._line = [other for other in self._line if other != key]
            self._put(job, job.row.turned("cancelled"))
        self._pump()
        await self._keeper.save()

    async def forget(self, ref: str) -> None:
        """The model was removed: its row goes, and a transfer of it ends first."""
        for job in [job for job in self._jobs.values() if job.row.ref == ref]:
            if not job.row.finished:
                await self.cancel(job.row.id)
            if job.row.finished:  # else it was asked for anew meanwhile
                self._jobs.pop(job.row.id, None)
        self._tell(at_once=True)
        await self._keeper.save()

    async def close(self) -> None:
        """Stop all transfers and wait until their files are closed. The next daemon goes on with them."""
        self._open = False
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._keeper.close()
        self._moves.close()

    def _job(self, key: str) -> _Job:
        if key not in self._jobs:
            raise UnknownModel(f"There is no download {key}.", hint="`appliance status` lists them.")
        return self._jobs[key]

    def _new(self, ref: str, total: int | None, resumable: bool) -> _Job:
        if sum(not job.row.finished for job in self._jobs.values()) >= MAX_ACTIVE:
            raise DownloadError(f"{MAX_ACTIVE} downloads are waiting.", hint="Let some end, or cancel some.")
        first = Progress(
            ref=ref, file="", phase="waiting", done=0, total=total, rate=None, eta_s=None,
            resumable=resumable, message=None,
        )  # fmt: skip
        job = _Job(Download(str(self._next), first))
        self._next += 1
        self._jobs[job.row.id] = job
        return job

    def _go_on(self, job: _Job) -> None:
        job.wanted = "run"  # also of one that is just being stopped: it goes on when it has ended
        if job.task is None and job.row.id not in self._line:
            self._line.append(job.row.id)
            self._put(job, job.row.turned("waiting"))
        self._pump()

    async def _stop(self, job: _Job, wanted: Literal["pause", "cancel"]) -> None:
        job.wanted = wanted
        if job.task is None:
            return
        job.task.cancel()
        done, _ = await asyncio.wait({job.task}, timeout=STOP_S)
        if not done:
            raise ApplianceError(
                f"The transfer of {job.row.ref} is slow to stop.",
                cause="The disk that it writes to does not answer.",
                hint="Look again in a while: it stops by itself.",
            )

    def _pump(self) -> None:
        """Start what may run now."""
        if self._open:
            busy = sum(job.task is not None for job in self._jobs.values())
            for key in list(self._line):
                job = self._jobs[key]
                if job.urgent or busy < MAX_RUNNING:
                    self._line.remove(key)
                    busy += 1
                    self._begin(job)
        self._number()

    def _begin(self, job: _Job) -> None:
        waiting = replace(job.row.progress, phase="waiting")
        self._put(job, replace(job.row.turned("running"), progress=waiting))
        job.task = asyncio.ensure_future(self._work(job.row, lambda moved: self._progress(job, moved)))
        job.task.add_done_callback(lambda done: self._ended(job, done))

    def _progress(self, job: _Job, progress: Progress) -> None:
        self._put(job, replace(job.row, progress=progress))

    def _ended(self, job: _Job, task: asyncio.Task[Repaired | None]) -> None:
        job.task, job.urgent = None, job.urgent and job.wanted == "run"
        if task.cancelled():
            self._stopped(job)
        elif (error := task.exception()) is not None:
            known = error if isinstance(error, ApplianceError) else _unexpected(error)
            self._put(job, job.row.turned("failed", error=known))
        else:
            self._put(job, job.row.turned("done", repaired=task.result()))
        if job.row.finished and job.row.id in self._jobs:  # the last to end is the last to go
            self._jobs[job.row.id] = self._jobs.pop(job.row.id)
        finished = [key for key, one in self._jobs.items() if one.row.finished]
        for old in finished[:-KEPT_FINISHED]:
            del self._jobs[old]
        self._pump()
        self._keeper.save_soon()

    def _stopped(self, job: _Job) -> None:
        if job.wanted == "run":  # the daemon stops, or it was asked for again while it was being stopped
            self._line.insert(0, job.row.id)
            self._put(job, job.row.turned("waiting"))
        else:
            self._put(job, job.row.turned("paused" if job.wanted == "pause" else "cancelled"))

    def _number(self) -> None:
        for place, key in enumerate(self._line, 1):
            job = self._jobs[key]
            if job.row.place != place:
                self._put(job, replace(job.row, place=place))

    def _put(self, job: _Job, row: Download) -> None:
        at_once = (row.phase, row.place) != (job.row.phase, job.row.place)
        job.row = row
        self._moves.notify()
        self._tell(at_once)

    def _tell(self, at_once: bool) -> None:
        now = time.monotonic()
        if at_once or now - self._told >= NOTIFY_S:
            self._told = now
            self._on_change()

    def _document(self) -> dict[str, Any]:
        return queue_file.document(self.snapshot, self._next)


def _unexpected(error: BaseException) -> ApplianceError:
    log.error("a download failed unexpectedly", exc_info=error)
    return ApplianceError(
        "The download failed.", cause=f"{type(error).__name__}", hint="See the daemon's log."
    )
