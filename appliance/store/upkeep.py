"""Verify and repair: read every file of a variant again, put aside what is damaged, fetch what differs.

A damaged file whose chunks are known becomes the partial file of the next pull, which then fetches only the
chunks that differ. Any other goes to quarantine. A file that has a name outside the store (a hard link) is
never written, one that is referenced is never touched at all.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.catalog import File
from appliance.errors import ApplianceError, ModelMissing, NotVerified
from appliance.store import chunks, layout, partlog, quarantine, records, removal, threads
from appliance.store.chunks import ChunkDigests
from appliance.store.damage import Finding, Good, examine
from appliance.store.layout import Layout
from appliance.store.lock import Lock
from appliance.store.partlog import Head, Line
from appliance.store.progress import Reporter
from appliance.store.threads import StopFlag
from appliance.store.types import Damage, OnProgress, Stored, StoredFile

log = logging.getLogger("appliance.store")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a look at all files of a variant came to."""

    stored: Stored | None
    """The renewed record; None when something is damaged."""
    good: tuple[StoredFile, ...]
    damage: tuple[Damage, ...]


async def read_again(where: Layout, folder: Path, stored: Stored, on_progress: OnProgress) -> Outcome:
    """`rehash` beside the event loop, with progress; a cancel ends it."""
    report = Reporter(stored.ref, stored.size, resumable=True, publish=on_progress)
    stop = threads.StopFlag()
    report.phase("verifying", total=stored.size)
    async with report.ticking():
        try:
            found = await threads.run(stop, rehash, where, folder, stored, report, stop)
        except ApplianceError as error:
            report.phase("failed", total=report.whole, message=error.message)
            raise
    if found.stored is None:
        report.phase("failed", total=report.whole, message=error_of(stored.ref, found.damage).message)
    else:
        report.phase("done", total=stored.size)
    return found


def rehash(where: Layout, folder: Path, stored: Stored, report: Reporter | None, stop: StopFlag) -> Outcome:
    """Read all files. All match: renew the record. Else put aside what is damaged. Blocks.

    Raises NotVerified for a file that never rests, and while another process is at work on the variant.
    """
    found: list[tuple[File, Good | Finding]] = []
    for file in stored.files:
        pin = File(name=file.name, size=file.size, sha256=file.sha256, role=file.role)
        if report is not None:
            report.file = pin.base_name
        known = chunks.read(layout.chunks(folder, pin), pin.size, pin.sha256)
        found.append((pin, examine(file, pin, known, stop, _counter(report))))
        if report is not None:
            report.base, report.done = report.base + pin.size, 0
    good = [(pin, item) for pin, item in found if isinstance(item, Good)]
    bad = [(pin, item) for pin, item in found if isinstance(item, Finding)]
    files = tuple(item.file for _, item in good)
    if bad:
        return Outcome(None, files, _settle(where, folder, stored, bad))
    for pin, item in good:
        _learn(folder, pin, item)
    renewed = records.renew(folder, files)
    if renewed is None:
        raise ModelMissing(f"{stored.ref} was removed while it was read.")
    return Outcome(renewed, files, ())


def error_of(ref: str, damage: Sequence[Damage]) -> ApplianceError:
    """For a variant that is not whole: ModelMissing when files are only missing, else NotVerified."""
    texts = "; ".join(item.text for item in damage) + "."
    repair = f"`appliance models repair {ref}` fetches only what is missing or differs; a wheel comes whole."
    if all(item.kind == "missing" for item in damage):
        return ModelMissing(f"{ref} is no longer whole.", cause=texts, hint=repair)
    kept = [f"{item.file} is kept as {item.kept}." for item in damage if item.action == "quarantined"]
    hint = "Make it readable, then verify again." if forbidden(damage) else " ".join([repair, *kept])
    return NotVerified(
        f"{ref} is damaged on this disk; it is not used.",
        cause=texts,
        hint=hint,
        damage=tuple(item.to_json() for item in damage),
    )


def forbidden(damage: Sequence[Damage]) -> bool:
    """Whether a file can't be read for want of a right: nothing that a download could mend."""
    return any(item.kind == "forbidden" for item in damage)


def _settle(
    where: Layout, folder: Path, stored: Stored, bad: Sequence[tuple[File, Finding]]
) -> tuple[Damage, ...]:
    """Under the lock: take the record away, and each damaged file out of use."""
    lock = Lock(where.lock(stored.ref))
    try:
        holder = lock.acquire()
        if holder is not None:
            raise NotVerified(
                f"{stored.ref} is damaged on this disk; it is not used.",
                cause="; ".join(f"{pin.base_name} {item.why}" for pin, item in bad)
                + f". The process {holder.pid} is at work on it, so nothing was moved.",
                hint="Wait for its end, then verify again.",
            )
        if any(_spoils_record(stored, pin, item) for pin, item in bad):
            # first: half a model must not look whole
            (folder / layout.RECORD).unlink(missing_ok=True)
        return tuple(_put_away(where, folder, stored, pin, item) for pin, item in bad)
    except OSError as error:
        raise removal.refused(folder, error) from None
    finally:
        lock.release()


def _spoils_record(stored: Stored, pin: File, item: Finding) -> bool:
    """Whether the variant is no longer here. A disk that is unplugged may come back, and so may a right."""
    if item.kind == "missing":
        return not _file_of(stored, pin).referenced
    return item.kind != "forbidden"


def _file_of(stored: Stored, pin: File) -> StoredFile:
    return next(file for file in stored.files if file.name == pin.base_name)


def _put_away(where: Layout, folder: Path, stored: Stored, pin: File, item: Finding) -> Damage:
    file = _file_of(stored, pin)
    if item.kind == "missing":
        return item.damage(pin, "left", None)
    moved_on = item.before is not None and not records.unchanged(item.before)
    if file.referenced or item.kind == "forbidden" or moved_on:
        return item.damage(pin, "left", file.path)
    if item.known is not None and _can_go_on(item, file.path):
        kept = _demote(folder, pin, item, item.known)
        log.info("%s of %s is damaged; a repair fetches what differs", pin.base_name, stored.ref)
        return item.damage(pin, "partial", kept)
    kept = quarantine.put_aside(
        where, file.path, pin, ref=stored.ref, actual=item.sha256, source="this disk", why=item.why
    )
    layout.chunks(folder, pin).unlink(missing_ok=True)
    log.info("%s of %s is quarantined: it %s", pin.base_name, stored.ref, item.why)
    return item.damage(pin, "quarantined", kept)


def _can_go_on(item: Finding, path: Path) -> bool:
    """Whether a pull may write into these bytes: it is known which are good, and nobody else has them."""
    if item.known is None or len(item.bad) == len(item.known.xxh3):
        return False
    return path.stat().st_nlink == 1 and not path.is_symlink()


def _demote(folder: Path, pin: File, item: Finding, known: ChunkDigests) -> Path:
    """Make a verified file the partial one again; its log names the chunks that are good.

    The log comes first: without the partial file it says nothing, while a partial file without a log would be
    taken for bytes that have just arrived.
    """
    path, part = layout.final(folder, pin), layout.part(folder, pin)
    lines = [
        Line(index, min(known.chunk, pin.size - index * known.chunk), digest)
        for index, digest in enumerate(known.xxh3)
        if index not in item.bad
    ]
    partlog.write(layout.log(folder, pin), Head(pin.size, pin.sha256, known.chunk), lines)
    if path.stat().st_size > pin.size:
        os.truncate(path, pin.size)
    os.replace(path, part)
    layout.chunks(folder, pin).unlink(missing_ok=True)
    return part


def _learn(folder: Path, pin: File, item: Good) -> None:
    """Keep the digests of the chunks of a file that matched, where none, or none of use, are kept."""
    path = layout.chunks(folder, pin)
    try:
        if chunks.read(path, pin.size, pin.sha256) != item.digests:
            item.digests.write(path)
    except OSError as error:  # a full or read-only disk: it only makes a later repair dearer
        log.info("%s can't be written: %s", path, error.strerror)


def _counter(report: Reporter | None) -> Callable[[int], None]:
    def moved(done: int) -> None:
        if report is not None:
            report.done = done

    return moved
