"""One worker per variant over all processes: it fetches, the others follow its progress."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError
from appliance.settings import Downloads
from appliance.store import disk, records, threads, upkeep
from appliance.store import lock as locks
from appliance.store.layout import Layout
from appliance.store.limiter import Bucket
from appliance.store.lock import Lock, Owner
from appliance.store.progress import Reporter
from appliance.store.pull import Pull
from appliance.store.types import Limits, OnProgress, Progress, Stored, StoredFile


@dataclass(frozen=True, slots=True)
class Fetched:
    """A variant that is here, and what that took."""

    stored: Stored
    n_bytes: int
    """Bytes that came from its source."""


@dataclass(frozen=True, slots=True)
class Fetching:
    """How this process fetches."""

    where: Layout
    env: Mapping[str, str]
    limits: Limits
    downloads: Downloads
    bucket: Bucket

    async def run(self, ref: ModelRef, on_progress: OnProgress, good: Sequence[StoredFile]) -> Fetched:
        """Make `ref` be here. `good` are files that were just proven where they are. See `Store.pull`."""
        lock = Lock(self.where.lock(ref.ref))
        report = Reporter(ref.ref, ref.variant.size, resumable=ref.variant.resumable, publish=on_progress)
        try:
            while True:
                here = await threads.run(None, self._present, ref)
                if here is not None:
                    report.base, report.done = ref.variant.size, 0
                    report.phase("done", total=ref.variant.size)
                    return Fetched(here, 0)
                try:
                    holder = await threads.run(None, locks.acquire, lock)
                except ApplianceError:  # a full or read-only disk
                    here = await self._proven(ref, on_progress)
                    if here is None:
                        raise
                    return Fetched(here, 0)
                if holder is None:
                    break
                await self._follow(lock, ref.ref, holder, on_progress)
            return Fetched(await self._pull(ref, lock, report, good), report.fetched)
        finally:
            await threads.run(None, lock.release)

    async def wait(self, ref: str, on_progress: OnProgress) -> None:
        """Follow who is at work on `id:QUANT`, until nobody is."""
        lock = Lock(self.where.lock(ref))
        holder = await threads.run(None, lock.owner)
        if holder is not None:
            await self._follow(lock, ref, holder, on_progress)

    async def _proven(self, ref: ModelRef, on_progress: OnProgress) -> Stored | None:
        """A model that is here and whole, whatever its record says of times, is good without a lock."""
        folder = self.where.folder(ref)
        stored = await threads.run(None, records.pinned, folder, ref)
        if stored is None:
            return None
        return (await upkeep.read_again(self.where, folder, stored, on_progress)).stored

    async def _pull(self, ref: ModelRef, lock: Lock, report: Reporter, good: Sequence[StoredFile]) -> Stored:
        pull = Pull(self.where, ref, report, self.limits, self.env, self.downloads, self.bucket)
        try:
            async with report.ticking(), lock.heart(report.state):
                stored = await pull.run(good)
        except (ApplianceError, OSError) as error:
            told = error if isinstance(error, ApplianceError) else self._refused(error, ref)
            report.phase("failed", total=report.whole, message=told.message)
            raise told from None
        report.phase("done", total=report.whole)
        return stored

    def _refused(self, error: OSError, ref: ModelRef) -> ApplianceError:
        """Of the system, where nobody expected it: a folder that may not be looked into."""
        return disk.write_error(error, Path(error.filename or self.where.folder(ref)), ref.variant.size)

    async def _follow(self, lock: Lock, ref: str, holder: Owner, on_progress: OnProgress) -> None:
        """Show the progress of the process that holds the lock until it lets go or dies."""
        owner: Owner | None = holder
        shown: Progress | None = None
        while owner is not None:
            found = _followed(owner, ref, lock.path)
            if found != shown:
                shown = found
                on_progress(found)
            await asyncio.sleep(self.limits.poll_s)
            owner = await threads.run(None, lock.owner)

    def _present(self, ref: ModelRef) -> Stored | None:
        stored = records.pinned(self.where.folder(ref), ref)
        return stored if stored is not None and records.intact(stored) else None


def _followed(owner: Owner, ref: str, path: Path) -> Progress:
    """The owner's last progress, as the follower shows it."""
    message = f"{owner.who} is fetching it"
    if owner.started is None and owner.ticks is None:
        message = f"{owner.who} holds it; if that fetches nothing, remove {path}"
    try:
        return dataclasses.replace(Progress(**owner.progress), message=message)
    except TypeError:
        return Progress(ref, "", "waiting", 0, None, None, None, True, message)
