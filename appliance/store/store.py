"""The models on this disk. Nothing is handed out unless its SHA-256 matched the pin."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from appliance.catalog import ModelRef
from appliance.errors import ModelMissing
from appliance.paths import Paths
from appliance.settings import Downloads
from appliance.store import adopt, holdings, layout, marker, prune, records, remains, removal, threads, upkeep
from appliance.store.fetching import Fetching
from appliance.store.layout import Layout
from appliance.store.limiter import Bucket
from appliance.store.marker import Marked
from appliance.store.mending import Mending, OnDamage
from appliance.store.prove import Proven
from appliance.store.taking import Adopted, How
from appliance.store.types import (
    Damage,
    Holding,
    Leftover,
    Limits,
    OnProgress,
    Pruned,
    Repaired,
    Stored,
    StoredFile,
    VerifyResult,
    no_progress,
)


class Store:
    """All models under one folder. Any number of processes may use it at the same time.

    `env` is where `HF_ENDPOINT`, `HF_TOKEN` and pip's variables are looked up, at every call (default: the
    environment of this process). `downloads` says how: connections, rate, mirrors.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        downloads: Downloads | None = None,
    ) -> None:
        self._where = Layout(paths.models)
        self._env: Mapping[str, str] = os.environ if env is None else env
        self._limits = limits or Limits()
        self._downloads = downloads or Downloads()
        self._bucket = Bucket(self._downloads.rate)
        self._unrecorded: dict[Path, Stored] = {}
        """What matched on a disk that takes no record: else each load would read all of it again."""

    def list(self) -> tuple[Stored, ...]:
        """Every variant that is here, by ref. Reads records only; `check` looks at the files."""
        return self._newest(lambda stored: all(file.path.is_file() for file in stored.files))

    def recorded(self) -> tuple[Stored, ...]:
        """Every variant that was verified here, by ref, those whose files are gone by now, too."""
        return self._newest(lambda _: True)

    def lost(self) -> tuple[Stored, ...]:
        """References whose files are no longer where the user had them, by ref. They may come back."""
        return self._newest(
            lambda stored: any(file.referenced and not file.path.is_file() for file in stored.files)
        )

    def require_not_lost(self, ref: ModelRef) -> None:
        """Before a pull that nobody asked for. Raises ModelMissing, which says where the files were."""
        stored = records.read(self._where.folder(ref))
        if stored is not None and stored in self.lost():
            raise upkeep.lost_error(stored)

    def _newest(self, wanted: Callable[[Stored], bool]) -> tuple[Stored, ...]:
        found: dict[str, Stored] = {}
        for folder in self._where.folders():
            stored = records.read(folder)
            if stored is None or not wanted(stored):
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

    async def pull(
        self, ref: ModelRef, on_progress: OnProgress = no_progress, *, rate: int | None = None
    ) -> Stored:
        """Make `ref` be here, verified. With its record unchanged this touches no network.

        While another process transfers the same variant, this one follows its progress. A cancel keeps what
        has arrived. `rate`: at most so many bytes per second for this one, in place of the limit that all
        share. Raises DiskFull, DownloadError, NotVerified (the bytes are quarantined) or ModelMissing.
        """
        good = await self._references(ref, on_progress)
        return (await self._fetching(rate).run(ref, on_progress, good)).stored

    async def _references(self, ref: ModelRef, on_progress: OnProgress) -> tuple[StoredFile, ...]:
        """The user's own files that are still good: a new time of one must not cost a transfer."""
        try:
            folder, stored = await threads.run(None, self._recorded, ref)
        except ModelMissing:
            return ()
        if not any(file.referenced for file in stored.files):
            return ()
        if records.intact(stored):
            return stored.files
        return (await upkeep.read_again(self._where, folder, stored, on_progress, mending=True)).good

    def _fetching(self, rate: int | None) -> Fetching:
        bucket = self._bucket if rate is None else Bucket(rate)
        return Fetching(self._where, self._env, self._limits, self._downloads, bucket)

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
        folder, stored = self._recorded(ref)
        for known in (stored, self._unrecorded.get(folder)):
            if known is not None and records.intact(known):
                return known
        found = upkeep.rehash(self._where, folder, stored, None, stop or threads.StopFlag())
        if found.stored is None:
            raise upkeep.error_of(stored, found.damage)
        if found.unrecorded is None:
            self._unrecorded.pop(folder, None)
        else:
            self._unrecorded[folder] = found.stored
        return found.stored

    async def verify(self, ref: ModelRef | str, on_progress: OnProgress = no_progress) -> VerifyResult:
        """Read every byte again. Raises ModelMissing, or NotVerified (its `damage` says what is wrong).

        A name, `id:QUANT`, means what is recorded here, also when the catalog pins something else by now. A
        damaged file is out of use afterwards: it is the partial file of the next repair where the digests of
        its chunks tell which of its bytes are good, else it is in quarantine.
        """
        began = time.monotonic()
        try:
            folder, stored = await threads.run(None, self._recorded, ref)
        except ModelMissing:
            marked = await threads.run(None, self._marked, ref)
            raise upkeep.error_of(marked.stored, marked.damage) from None
        found = await upkeep.read_again(self._where, folder, stored, on_progress)
        if found.stored is None:
            raise upkeep.error_of(stored, found.damage)
        seconds = time.monotonic() - began
        return VerifyResult(stored.ref, found.stored, stored.size, seconds, found.unrecorded)

    async def repair(
        self, ref: ModelRef, on_progress: OnProgress = no_progress, on_damage: OnDamage | None = None
    ) -> Repaired:
        """Verify, then fetch what differs; of a set only the damaged files. Who is at work on it is followed
        first.

        A damaged reference is fetched into the store; the user's own file stays as it is. `on_damage` is
        awaited before anything is fetched. Raises ModelMissing when nothing of it is here, NotVerified when a
        file can't be read for want of a right, and whatever `pull` raises.
        """
        mending = Mending(self._fetching(None), self._recorded, self._has_traces)
        return await mending.run(ref, on_progress, on_damage)

    def damaged(self) -> Mapping[str, tuple[Damage, ...]]:
        """By `id:QUANT`: what was here and is no longer whole, and what is wrong, as the last check found it.

        By the id alone where even its folder can't be read. Reads no model bytes.
        """
        return {ref: marked.damage for ref, marked in marker.damaged(self._where).items()}

    def _marked(self, ref: ModelRef | str) -> Marked:
        """What is remembered of a variant without a record. Raises ModelMissing when it was never here."""
        name = ref if isinstance(ref, str) else ref.ref
        found = marker.damaged(self._where)
        marked = found.get(name) or found.get(name.partition(":")[0])
        if marked is None:
            raise self._missing(name)
        return marked

    def strangers(self) -> tuple[Path, ...]:
        """Files among the models that are not ours; nothing that is pruned takes them along."""
        return prune.strangers(self._where)

    def remove(self, ref: str | ModelRef) -> int:
        """Delete every file of a variant, unfinished ones too. Returns the bytes freed.

        A name means all that is here of it, a ModelRef only the files of its present pins.

        The user's own file behind a reference stays. Raises ModelMissing when there is none, ModelError while
        it is being transferred.
        """
        if isinstance(ref, str):
            return removal.remove(self._where, ref)
        return removal.remove(self._where, ref.ref, self._where.folder(ref))

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
        with contextlib.suppress(OSError, ModelMissing):
            folder, _ = self._recorded(ref)
            (folder / layout.USED).touch()

    def last_used(self, ref: str) -> float | None:
        """When a model was loaded last, in seconds since the epoch; None = never."""
        times = [
            at for folder in self._where.folders_of(ref) if (at := remains.last_used(folder)) is not None
        ]
        return max(times, default=None)

    def _recorded(self, ref: ModelRef | str) -> tuple[Path, Stored]:
        """Folder and record of a variant. A name means the record written last, whatever the catalog says."""
        if isinstance(ref, str):
            known = [
                (f, stored) for f in self._where.folders_of(ref) if (stored := records.read(f)) is not None
            ]
            if not known:
                raise self._missing(ref)
            return max(known, key=lambda pair: pair[1].verified_at)
        folder = self._where.folder(ref)
        stored = records.pinned(folder, ref)
        if stored is None:
            raise self._missing(ref.ref)
        return folder, stored

    def _has_traces(self, ref: ModelRef) -> bool:
        """Whether an earlier check, or a transfer that ended, left something of `ref`."""
        if self._where.folder(ref).is_dir():
            return True
        return any(item.about.startswith(f"{ref.ref}:") for item in self.leftovers())

    def _missing(self, ref: str) -> ModelMissing:
        pull = f"`appliance models pull {ref}` fetches "
        if self.find(ref) is not None:
            cause = "The files here belong to another pin of the catalog."
            return ModelMissing(f"{ref} is not on this disk.", cause=cause, hint=pull + "it.")
        if self._where.folders_of(ref):
            return ModelMissing(f"{ref} is not whole on this disk.", hint=pull + "what is missing.")
        return ModelMissing(f"{ref} is not on this disk.", hint=pull + "it.")
