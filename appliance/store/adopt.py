"""Taking in files that are on this computer already: by hard link, by reference, or as a copy.

Nothing is taken before it was hashed and matched the pin. The user's own file is never moved, written or
deleted: a hard link is a second name for the same bytes, a reference only notes where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from appliance.catalog import File, ModelRef
from appliance.errors import ApplianceError, NotVerified, UsageError
from appliance.store import lock as locks
from appliance.store import threads
from appliance.store.layout import Layout
from appliance.store.lock import Lock
from appliance.store.progress import Reporter
from appliance.store.prove import Proven, prove
from appliance.store.taking import OTHER_DISK, Adopted, How, Taking, reason
from appliance.store.types import OnProgress


def best_way(path: Path, models: Path) -> tuple[How, str | None]:
    """How a file would be taken into the store under `models` by itself, and why not by hard link.

    A look, not a promise: what the system refuses shows when it is asked.
    """
    folder = next((p for p in (models, *models.parents) if p.exists()), models)
    try:
        if path.stat().st_dev != folder.stat().st_dev:
            return "reference", OTHER_DISK
    except OSError as error:
        return "reference", reason(error)
    return "link", None


async def adopt(
    where: Layout,
    ref: ModelRef,
    files: Sequence[Path | Proven | None],
    how: How | None,
    on_progress: OnProgress,
) -> Adopted:
    """Make `ref` be here from `files`, which stand in the order of its pins; None = that one is not here.

    `how` None: by hard link, else by reference. Raises what `prove` raises; NotVerified when a file is not
    what its pin says; UsageError when `how` can't be done; ModelError while another process is at work on the
    variant; DiskFull and DownloadError of a copy, whose partial file is kept.
    """
    report = Reporter(ref.ref, ref.variant.size, resumable=True, publish=on_progress)
    lock = Lock(where.lock(ref.ref))

    try:
        await threads.run(None, _acquire, lock, ref)
        async with report.ticking(), lock.heart(report.state):
            found = await _adopted(where, ref, files, how, report)
    except ApplianceError as error:
        report.phase("failed", total=report.whole, message=error.message)
        raise
    finally:
        await threads.run(None, lock.release)
    report.base, report.done = ref.variant.size, 0
    report.phase("done", total=ref.variant.size)
    return found


async def _adopted(
    where: Layout, ref: ModelRef, files: Sequence[Path | Proven | None], how: How | None, report: Reporter
) -> Adopted:
    pins = ref.variant.files
    if len(files) != len(pins):
        raise UsageError(f"{ref.ref} has {len(pins)} files; {len(files)} were given.")
    unread = [item for item in files if isinstance(item, Path)]
    read = iter(await prove(unread, report)) if unread else iter(())
    pairs = [
        (next(read) if isinstance(item, Path) else item, pin)
        for item, pin in zip(files, pins, strict=True)
        if item is not None
    ]
    for item, pin in pairs:
        _require_match(item, pin)
    report.base, report.done = 0, 0
    if how == "copy":
        report.phase("downloading", total=ref.variant.size, message="copying")
    stop = threads.StopFlag()
    return await threads.run(stop, Taking(where, ref, pairs, report, stop).run, how)


def _require_match(item: Proven, pin: File) -> None:
    if (item.size, item.sha256) != (pin.size, pin.sha256):
        raise NotVerified(
            f"{item.path} is not the file that the catalog pins; it is not used.",
            cause=f"Expected {pin.size} bytes with SHA-256 {pin.sha256}, "
            f"got {item.size} bytes with {item.sha256}.",
            hint="Import it under a name of its own: `appliance models import PATH --id NAME`.",
        )


def _acquire(lock: Lock, ref: ModelRef) -> None:
    holder = locks.acquire(lock)
    if holder is not None:
        raise locks.busy(ref.ref, holder)
