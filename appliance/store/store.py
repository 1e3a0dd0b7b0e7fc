"""The models on this disk. Nothing is handed out unless its SHA-256 matched the pin."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError, ModelMissing
from appliance.paths import Paths
from appliance.store import adopt, holdings, layout, prune, records, removal, threads, upkeep
from appliance.store import lock as locks
from appliance.store.layout import Layout
from appliance.store.lock import Lock, Owner
from appliance.store.progress import Reporter
from appliance.store.prove import Proven
from appliance.store.pull import Pull
from appliance.store.taking import Adopted, How
from appliance.store.types import (
    Damage,
    Holding,
    Leftover,
    Limits,
    OnProgress,
    Progress,
    Pruned,
    Repaired,
    Stored,
    VerifyResult,
    no_progress,
)


class Store:
    """All models under one folder. Any number of processes may use it at the same time.

    `env` is where `HF_ENDPOINT`, `HF_TOKEN` and pip's variables are looked up, at every call (default: the
    environment of this process).
    """

    def __init__(
        self, paths: Paths, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> None:
        self._where = Layout(paths.models)
        self._env: Mapping[str, str] = os.environ if env is None else env
        self._limits = limits or Limits()

    def list(self) -> tuple[Stored, ...]:
        """Every variant that is here, by ref. Reads records only; `check` looks at the files."""
        found: dict[str, Stored] = {}
        for folder in self._where.folders():
            stored = records.read(folder)
            if stored is None or not all(file.path.is_file() for file in stored.files):
                continue
            known = found.get(stored.ref)
            if known is None or known.verified_at < stored.verified_at:
                found[stored.ref] = stored
        return tuple(found[ref] for ref in sorted(found))

    def find(self, ref: str) -> Stored | None:
        """The variant `id:QUANT`, when it is here."""
        return next((stored for stored in self.list() if stored.ref == ref), None)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Unfinished and quarantined files, with what they take on the disk."""
        return prune.leftovers(self._where)

    def holdings(self) -> Mapping[str, Holding]:
        """What the disk holds of each variant, by `id:QUANT`, whole or not. Reads no model bytes."""
        return holdings.holdings(self._where)

    async def pull(self, ref: ModelRef, on_progress: OnProgress = no_progress) -> Stored:
        """Make `ref` be here, verified. With its record unchanged this touches no network.

        While another process transfers the same variant, this one follows its progress. A cancel keeps what
        has arrived. Raises DiskFull, DownloadError, NotVerified (the bytes are quarantined) or ModelMissing.
        """
        stored, _ = await self._fetch(ref, on_progress)
        return stored

    async def _fetch(self, ref: ModelRef, on_progress: OnProgress) -> tuple[Stored, int]:
        """The variant, and how many bytes came from its source."""
        lock = Lock(self._where.lock(ref.ref))
        report = Reporter(
            ref.ref, ref.variant.size, resumable=ref.variant.source.kind != "wheel", publish=on_progress
        )
        try:
            while True:
                here = await threads.run(None, self._present, ref)
                if here is not None:
                    report.base, report.done = ref.variant.size, 0
                    report.phase("done", total=ref.variant.size)
                    return here, 0
                holder = await threads.run(None, locks.acquire, lock)
                if holder is None:
                    break
                await self._follow(lock, ref.ref, holder, on_progress)
            return await self._pull(ref, lock, report), report.fetched
        finally:
            await threads.run(None, lock.release)

    async def _pull(self, ref: ModelRef, lock: Lock, report: Reporter) -> Stored:
        def state() -> dict[str, Any]:
            return dataclasses.asdict(report.last) if report.last else {}

        try:
            async with report.ticking(), lock.heart(state):
                stored = await Pull(self._where, ref, report, self._limits, self._env).run()
        except ApplianceError as error:
            report.phase("failed", total=report.whole, message=error.message)
            raise
        report.phase("done", total=report.whole)
        return stored

    async def _follow(self, lock: Lock, ref: str, holder: Owner, on_progress: OnProgress) -> None:
        """Show the progress of the process that holds the lock until it lets go or dies."""
        owner: Owner | None = holder
        shown: Progress | None = None
        while owner is not None:
            found = _followed(owner, ref)
            if found != shown:
                shown = found
                on_progress(found)
            await asyncio.sleep(self._limits.poll_s)
            owner = await threads.run(None, lock.owner)

    async def adopt(
        self,
        ref: ModelRef,
        files: Sequence[Path | Proven | None],
        how: How | None = None,
        on_progress: OnProgress = no_progress,
    ) -> Adopted:
        """Make `ref` be here from files of this computer, in the order of its pins; see `adopt.adopt`."""
        return await adopt.adopt(self._where, ref, files, how, on_progress)

    async def require(self, ref: ModelRef) -> Stored:
        """`check` beside the event loop; a cancel ends a hash that is under way."""
        stop = threads.StopFlag()
        return await threads.run(stop, self.check, ref, stop)

    def check(self, ref: ModelRef, stop: threads.StopFlag | None = None) -> Stored:
        """What every load asks first: recorded, of the present pin, and unchanged since it was verified.

        When size, a time or the inode changed, the files are hashed again (this blocks: `require`
        does not). Raises ModelMissing, or NotVerified after it put damaged files aside. Needs no network.
        """
        stored = self._recorded(ref)
        if all(records.unchanged(file) for file in stored.files):
            return stored
        found = upkeep.rehash(self._where, ref, stored, None, stop or threads.StopFlag())
        if found.stored is None:
            raise upkeep.error_of(ref, found.damage)
        return found.stored

    async def verify(self, ref: ModelRef, on_progress: OnProgress = no_progress) -> VerifyResult:
        """Read every byte again. Raises ModelMissing, or NotVerified (its `damage` says what is wrong).

        A damaged file is out of use afterwards: it is the partial file of the next repair where the digests
        of its chunks tell which of its bytes are good, else it is in quarantine.
        """
        began = time.monotonic()
        found = await self._read_again(ref, on_progress)
        if found.stored is None:
            raise upkeep.error_of(ref, found.damage)
        return VerifyResult(ref.ref, found.stored, found.stored.size, time.monotonic() - began)

    async def repair(self, ref: ModelRef, on_progress: OnProgress = no_progress) -> Repaired:
        """Verify, then fetch what differs; of a set only the damaged files.

        A damaged reference is fetched into the store; the user's own file stays as it is. Raises ModelMissing
        when nothing of it is here, NotVerified when a file can't be read for want of a right, and whatever
        `pull` raises.
        """
        damage: tuple[Damage, ...] = ()
        if await threads.run(None, self._is_recorded, ref):
            found = await self._read_again(ref, on_progress)
            if found.stored is not None:
                return Repaired(ref.ref, found.stored, 0, ())
            if upkeep.forbidden(found.damage):
                raise upkeep.error_of(ref, found.damage)
            damage = found.damage
        elif not await threads.run(None, self._has_traces, ref):
            raise self._missing(ref)
        stored, fetched = await self._fetch(ref, on_progress)
        return Repaired(ref.ref, stored, fetched, damage)

    async def _read_again(self, ref: ModelRef, on_progress: OnProgress) -> upkeep.Outcome:
        stored = await threads.run(None, self._recorded, ref)
        report = Reporter(ref.ref, stored.size, resumable=True, publish=on_progress)
        stop = threads.StopFlag()
        report.phase("verifying", total=stored.size)
        async with report.ticking():
            try:
                found = await threads.run(stop, upkeep.rehash, self._where, ref, stored, report, stop)
            except ApplianceError as error:
                report.phase("failed", total=report.whole, message=error.message)
                raise
        if found.stored is None:
            problem = upkeep.error_of(ref, found.damage)
            report.phase("failed", total=report.whole, message=problem.message)
        else:
            report.phase("done", total=stored.size)
        return found

    def remove(self, ref: str | ModelRef) -> int:
        """Delete every file of a variant, unfinished ones too. Returns the bytes freed.

        The user's own file behind a reference stays. Raises ModelMissing when there is none, ModelError while
        it is being transferred.
        """
        return removal.remove(self._where, ref if isinstance(ref, str) else ref.ref)

    def prune(
        self,
        *,
        partials: bool = False,
        quarantine: bool = False,
        unused_s: float | None = None,
        dry_run: bool = True,
        keep: frozenset[str] = frozenset(),
    ) -> tuple[Pruned, ...]:
        """Remove unfinished files, quarantined ones, models not loaded for `unused_s` seconds, and always
        what dead processes left behind (stale locks, empty folders). A dry run only lists.

        Never touched: what is being fetched now, the refs in `keep` and references. Blocks.
        """
        return prune.prune(
            self._where,
            partials=partials,
            quarantine=quarantine,
            unused_s=unused_s,
            dry_run=dry_run,
            keep=keep,
        )

    def touch(self, ref: str) -> None:
        """Note that a model is loaded now. A disk that can't be written is no reason not to load."""
        for folder in self._folders(ref):
            with contextlib.suppress(OSError):
                (folder / layout.USED).touch()

    def last_used(self, ref: str) -> float | None:
        """When a model was loaded last, in seconds since the epoch; None = never."""
        times = [at for folder in self._folders(ref) if (at := prune.last_used(folder)) is not None]
        return max(times, default=None)

    def _folders(self, ref: str) -> tuple[Path, ...]:
        return tuple(folder for folder in self._where.folders() if prune.ref_of(folder) == ref)

    def _present(self, ref: ModelRef) -> Stored | None:
        stored = records.read(self._where.folder(ref))
        if stored is None or not records.matches_pin(stored, ref):
            return None
        return stored if all(records.unchanged(file) for file in stored.files) else None

    def _is_recorded(self, ref: ModelRef) -> bool:
        stored = records.read(self._where.folder(ref))
        return stored is not None and records.matches_pin(stored, ref)

    def _recorded(self, ref: ModelRef) -> Stored:
        stored = records.read(self._where.folder(ref))
        if stored is None or not records.matches_pin(stored, ref):
            raise self._missing(ref)
        return stored

    def _has_traces(self, ref: ModelRef) -> bool:
        """Whether an earlier check, or a transfer that ended, left something of `ref`."""
        if self._where.folder(ref).is_dir():
            return True
        return any(item.about.startswith(f"{ref.ref}:") for item in self.leftovers())

    def _missing(self, ref: ModelRef) -> ModelMissing:
        other = self.find(ref.ref)
        return ModelMissing(
            f"{ref.ref} is not on this disk.",
            cause="The files here belong to another pin of the catalog." if other else None,
            hint=f"`appliance models pull {ref.ref}` fetches it.",
        )


def _followed(owner: Owner, ref: str) -> Progress:
    """The owner's last progress, as the follower shows it."""
    message = f"the process {owner.pid} is fetching it"
    try:
        return dataclasses.replace(Progress(**owner.progress), message=message)
    except TypeError:
        return Progress(ref, "", "waiting", 0, None, None, None, True, message)
