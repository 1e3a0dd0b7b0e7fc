"""The models on this disk. Nothing is handed out unless its SHA-256 matched the pin."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from appliance.catalog import File, ModelRef
from appliance.errors import ApplianceError, ModelError, ModelMissing, NotVerified
from appliance.paths import Paths
from appliance.store import layout, local, quarantine, records, threads
from appliance.store.layout import Layout
from appliance.store.lock import Lock, Owner
from appliance.store.progress import Reporter
from appliance.store.pull import Pull
from appliance.store.types import (
    Leftover,
    Limits,
    OnProgress,
    Progress,
    Stored,
    StoredFile,
    VerifyResult,
    no_progress,
)

_READS = 3
"""How often a file that moves while it is hashed is read before it is given up."""
log = logging.getLogger("appliance.store")


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
        """Unfinished and quarantined files."""
        return quarantine.leftovers(self._where)

    async def pull(self, ref: ModelRef, on_progress: OnProgress = no_progress) -> Stored:
        """Make `ref` be here, verified. With its record unchanged this touches no network.

        While another process transfers the same variant, this one follows its progress. A cancel keeps what
        has arrived. Raises DiskFull, DownloadError, NotVerified (the bytes are quarantined) or ModelMissing.
        """
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
                    return here
                holder = await threads.run(None, _acquire, lock)
                if holder is None:
                    break
                await self._follow(lock, ref.ref, holder, on_progress)
            return await self._pull(ref, lock, report)
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

    async def require(self, ref: ModelRef) -> Stored:
        """`check` beside the event loop; a cancel ends a hash that is under way."""
        stop = threads.StopFlag()
        return await threads.run(stop, self.check, ref, stop)

    def check(self, ref: ModelRef, stop: threads.StopFlag | None = None) -> Stored:
        """What every load asks first: recorded, of the present pin, and unchanged since it was verified.

        When size, a time or the inode changed, the files are hashed again (this blocks: `require`
        does not). Raises ModelMissing, or NotVerified after it put damaged files aside. Needs no network.
        """
        folder = self._where.folder(ref)
        stored = records.read(folder)
        if stored is None or not records.matches_pin(stored, ref):
            raise self._missing(ref)
        if all(records.unchanged(file) for file in stored.files):
            return stored
        return self._rehash(ref, stored, None, stop or threads.StopFlag())

    async def verify(self, ref: ModelRef, on_progress: OnProgress = no_progress) -> VerifyResult:
        """Read every byte again. Raises ModelMissing, or NotVerified after it put damaged files aside."""
        began = time.monotonic()
        stored = await threads.run(None, records.read, self._where.folder(ref))
        if stored is None or not records.matches_pin(stored, ref):
            raise self._missing(ref)
        report = Reporter(ref.ref, stored.size, resumable=True, publish=on_progress)
        stop = threads.StopFlag()
        report.phase("verifying", total=stored.size)
        async with report.ticking():
            try:
                stored = await threads.run(stop, self._rehash, ref, stored, report, stop)
            except ApplianceError as error:
                report.phase("failed", total=report.whole, message=error.message)
                raise
        report.phase("done", total=stored.size)
        return VerifyResult(ref.ref, stored, stored.size, time.monotonic() - began)

    def remove(self, ref: str | ModelRef) -> int:
        """Delete every file of a variant, unfinished ones too. Returns the bytes freed.

        Raises ModelMissing when there is none, ModelError while it is being transferred.
        """
        name = ref if isinstance(ref, str) else ref.ref
        model_id, _, quant = name.partition(":")
        lock = Lock(self._where.lock(name))
        holder = lock.acquire()
        if holder is not None:
            raise ModelError(
                f"{name} is being fetched by the process {holder.pid}.",
                hint="Stop that first, or wait for its end.",
            )
        try:
            folders = [
                f for f in self._where.folders() if f.parent.name == model_id and layout.quant_of(f) == quant
            ]
            if not folders:
                raise ModelMissing(
                    f"{name} is not on this disk.", hint="`appliance models list` shows what is."
                )
            return sum(_delete(folder) for folder in folders)
        finally:
            lock.release()

    def _present(self, ref: ModelRef) -> Stored | None:
        stored = records.read(self._where.folder(ref))
        if stored is None or not records.matches_pin(stored, ref):
            return None
        return stored if all(records.unchanged(file) for file in stored.files) else None

    def _missing(self, ref: ModelRef) -> ModelMissing:
        other = self.find(ref.ref)
        return ModelMissing(
            f"{ref.ref} is not on this disk.",
            cause="The files here belong to another pin of the catalog." if other else None,
            hint=f"`appliance models pull {ref.ref}` fetches it.",
        )

    @staticmethod
    def _settled_digest(
        path: Path, pin: File, stop: threads.StopFlag, moved: Callable[[int], None]
    ) -> tuple[StoredFile, str]:
        """The hash of a file that did not change while it was read.

        A chmod or a new hard link moves the change time without touching a byte, so the file is read again
        rather than called damaged. Raises NotVerified when it never rests; nothing is put aside then.
        """
        for _ in range(_READS):
            before = records.stored_file(path, pin)
            actual = local.digest(path, stop, moved)
            if records.unchanged(before):
                return before, actual
        raise NotVerified(
            f"{path.name} keeps changing while it is read.",
            cause=f"Its size or times moved during each of {_READS} reads.",
            hint="Let the program that writes to it end, then try again.",
        )

    def _rehash(
        self, ref: ModelRef, stored: Stored, report: Reporter | None, stop: threads.StopFlag
    ) -> Stored:
        """Hash all files. All match: renew the record. Else put the damaged ones aside and raise."""
        folder, damaged, good = self._where.folder(ref), list[str](), list[StoredFile]()
        missing: list[str] = []
        for file, pin in zip(stored.files, ref.variant.files, strict=True):

            def moved(done: int) -> None:
                if report is not None:
                    report.done = done

            if report is not None:
                report.file = file.path.name
            if not file.path.is_file():
                missing.append(file.path.name)
                continue
            before, actual = self._settled_digest(file.path, pin, stop, moved)
            if actual == pin.sha256:
                good.append(before)
            else:
                kept = quarantine.put_aside(
                    self._where, file.path, pin, ref=ref.ref, actual=actual, source="this disk",
                    why="its bytes changed on this disk",
                )  # fmt: skip
                damaged.append(
                    f"{file.path.name} has SHA-256 {actual}, expected {pin.sha256}; kept as {kept}"
                )
            if report is not None:
                report.base, report.done = report.base + file.size, 0
        if not damaged and not missing:
            return records.write(folder, ref, good)
        (folder / layout.RECORD).unlink(missing_ok=True)
        raise _damage(ref, damaged, missing)


def _damage(ref: ModelRef, damaged: list[str], missing: list[str]) -> ApplianceError:
    hint = f"`appliance models pull {ref.ref}` fetches only what is missing."
    if damaged:
        return NotVerified(
            f"{ref.ref} is damaged on this disk; it is not used.", cause="; ".join(damaged) + ".", hint=hint
        )
    return ModelMissing(f"{ref.ref} is no longer whole.", cause=f"Missing: {', '.join(missing)}.", hint=hint)


def _acquire(lock: Lock) -> Owner | None:
    try:
        return lock.acquire()
    except OSError as error:
        raise ApplianceError(
            "The model folder can't be written.",
            cause=error.strerror or str(error),
            hint="Make it writable, or set APPLIANCE_HOME to a folder that is.",
        ) from None


def _followed(owner: Owner, ref: str) -> Progress:
    """The owner's last progress, as the follower shows it."""
    message = f"the process {owner.pid} is fetching it"
    try:
        return dataclasses.replace(Progress(**owner.progress), message=message)
    except TypeError:
        return Progress(ref, "", "waiting", 0, None, None, None, True, message)


def _delete(folder: Path) -> int:
    freed = 0
    (folder / layout.RECORD).unlink(missing_ok=True)  # first: half a model must not look whole
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
            continue
        stat = path.lstat()
        freed += stat.st_size if stat.st_nlink == 1 else 0
        path.unlink()
    folder.rmdir()
    if not any(folder.parent.iterdir()):
        folder.parent.rmdir()
    return freed
