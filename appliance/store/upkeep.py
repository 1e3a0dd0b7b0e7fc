"""Verify and repair: read every file of a variant again, put aside what is damaged, fetch what differs.

A damaged file whose chunks are known becomes the partial file of the next pull, which then fetches only the
chunks that differ. Any other goes to quarantine. A file that has a name outside the store (a hard link) is
never written, one that is referenced is never touched at all.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.catalog import File
from appliance.errors import ApplianceError, ModelMissing, NotVerified
from appliance.store import chunks, demotion, disk, layout, marker, records, threads
from appliance.store.damage import Finding, Good, examine, missing
from appliance.store.layout import Layout
from appliance.store.lock import Lock
from appliance.store.marker import Marked
from appliance.store.progress import Reporter
from appliance.store.threads import StopFlag
from appliance.store.types import Damage, OnProgress, Stored, StoredFile
from appliance.text import clean_line

log = logging.getLogger("appliance.store")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a look at all files of a variant came to."""

    stored: Stored | None
    """The renewed record; None when something is damaged."""
    good: tuple[StoredFile, ...]
    damage: tuple[Damage, ...]
    unrecorded: str | None = None
    """Why the record of a variant that is whole could not be renewed; None = it was, or it is not whole."""


class AtWork(NotVerified):
    """Damage was seen, but another process is at work on the variant, or was: to be looked at again."""


async def read_again(
    where: Layout, folder: Path, stored: Stored, on_progress: OnProgress, *, mending: bool = False
) -> Outcome:
    """`rehash` beside the event loop, with progress; a cancel ends it.

    `mending`: the caller goes on with what is damaged, so that is told as a step and not as the end.
    """
    report = Reporter(stored.ref, stored.size, resumable=True, publish=on_progress)
    stop = threads.StopFlag()
    report.phase("verifying", total=stored.size)
    async with report.ticking():
        try:
            found = await threads.run(stop, rehash, where, folder, stored, report, stop)
        except ApplianceError as error:
            if not (mending and isinstance(error, AtWork)):
                report.phase("failed", total=report.whole, message=error.message)
            raise
    if found.stored is None and mending:
        names = ", ".join(item.file for item in found.damage)
        report.phase("repairing", total=report.whole, message=f"damaged: {names}")
    elif found.stored is None:
        report.phase("failed", total=report.whole, message=error_of(stored, found.damage).message)
    else:
        report.phase("done", total=stored.size)
    return found


def rehash(where: Layout, folder: Path, stored: Stored, report: Reporter | None, stop: StopFlag) -> Outcome:
    """Read all files. All match: renew the record. Else put aside what is damaged. Blocks.

    Raises NotVerified for a file that never rests, and while another process is at work on the variant.
    """
    found: list[tuple[File, Good | Finding]] = []
    for file in stored.files:
        pin = _pin_of(file)
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
    records.trust(files)
    for pin, item in good:
        demotion.learn(folder, pin, item)
    try:
        renewed = records.renew(folder, files)
    except OSError as error:  # a full or read-only disk: what is good stays so
        log.info("the record in %s can't be renewed: %s", folder, error.strerror)
        now = dataclasses.replace(stored, files=files, verified_at=time.time())
        return Outcome(now, files, (), disk.reason(error))
    if renewed is None:
        raise _gone(stored)
    return Outcome(renewed, files, ())


def error_of(stored: Stored, damage: Sequence[Damage]) -> ApplianceError:
    """For a variant that is not whole: ModelMissing when files are only missing, else NotVerified."""
    ref, texts = stored.ref, "; ".join(item.text for item in damage) + "."
    repair = _way_back(stored, damage)
    if all(item.kind == "missing" for item in damage):
        return ModelMissing(f"{ref} is no longer whole.", cause=texts, hint=repair)
    kept = [f"{item.file} is kept as {item.kept}." for item in damage if item.action == "quarantined"]
    away = [f"Move {item.kept} away first." for item in damage if item.kind == "irregular"]
    hint = "Make it readable, then verify again." if forbidden(damage) else " ".join([*away, repair, *kept])
    return NotVerified(
        f"{ref} is damaged on this disk; it is not used.",
        cause=texts,
        hint=hint,
        damage=tuple(item.to_json() for item in damage),
    )


def lost_error(stored: Stored) -> ApplianceError:
    """For a reference whose files are no longer where the user had them."""
    gone = [file for file in stored.files if file.referenced and not file.path.is_file()]
    found = [missing(file).damage(_pin_of(file), "left", None) for file in gone]
    return error_of(stored, found)


def _way_back(stored: Stored, damage: Sequence[Damage]) -> str:
    """What to do, by where the model comes from and where its files are."""
    ref = stored.ref
    if stored.origin is not None:
        return (
            f"Its source is {clean_line(stored.origin, 300)} on this computer. With the right file there "
            f"(again), `appliance models repair {ref}` takes it from there; without it, "
            f"`appliance models rm {ref}` forgets it."
        )
    names = {file.name for file in stored.files if file.referenced}
    if all(item.kind == "missing" and item.file in names for item in damage):
        return (
            "Put it back there, or connect its disk. "
            f"`appliance models pull {ref}` fetches it from its source instead."
        )
    return f"`appliance models repair {ref}` fetches only what is missing or differs; a wheel comes whole."


def forbidden(damage: Sequence[Damage]) -> bool:
    """Whether a file can't be read for want of a right: nothing that a download could mend."""
    return any(item.kind == "forbidden" for item in damage)


def _settle(
    where: Layout, folder: Path, stored: Stored, bad: Sequence[tuple[File, Finding]]
) -> tuple[Damage, ...]:
    """Under the lock: take the record away, and each damaged file out of use. What can't be moved is told."""
    try:
        with Lock(where.lock(stored.ref)).clearing() as holder:
            if holder is not None:
                raise AtWork(
                    f"{stored.ref} is damaged on this disk; it is not used.",
                    cause="; ".join(f"{pin.base_name} {item.why}" for pin, item in bad)
                    + f". {holder.who[:1].upper()}{holder.who[1:]} is at work on it, so nothing was moved.",
                    hint="Wait for its end, then verify again.",
                )
            return _settled_before(folder, stored) or _settled(where, folder, stored, bad)
    except OSError as error:  # not even the lock: read-only, or another user's
        _distrust(stored, bad)
        return tuple(_left(stored, pin, item, disk.reason(error)) for pin, item in bad)


def _settled_before(folder: Path, stored: Stored) -> tuple[Damage, ...]:
    """What another process made of it while it was read; empty when it is still as it was."""
    now = records.read(folder)
    if now is not None:
        if now.files == stored.files:
            return ()
        raise AtWork(
            f"{stored.ref} was damaged, and another process has changed it while it was read.",
            hint=f"Verify it again: `appliance models verify {stored.ref}`.",
        )
    if os.path.lexists(folder / layout.RECORD):
        return ()
    marked = marker.read(folder)
    if marked is None:
        raise _gone(stored)
    return marked.damage


def _settled(
    where: Layout, folder: Path, stored: Stored, bad: Sequence[tuple[File, Finding]]
) -> tuple[Damage, ...]:
    spoiled = any(_spoils_record(item) for _, item in bad)
    noted = False
    if spoiled:  # first: half a model must not look whole
        first = tuple(item.damage(pin, "left", _place(stored, pin, item)) for pin, item in bad)
        noted = marker.write(folder, Marked(stored.ref, first, stored.origin))
        if not records.withdraw(folder, noted=noted):
            _distrust(stored, bad)
    found = tuple(_put_away(where, folder, stored, pin, item) for pin, item in bad)
    if spoiled:  # what became of it; and a record that was emptied may have made room for the note
        marker.write(folder, Marked(stored.ref, found, stored.origin))
    return found


def _distrust(stored: Stored, bad: Sequence[tuple[File, Finding]]) -> None:
    for pin, item in bad:
        if item.before is not None and not _file_of(stored, pin).referenced:
            records.distrust(item.before)


def _gone(stored: Stored) -> ModelMissing:
    return ModelMissing(f"{stored.ref} was removed while it was read.")


def _spoils_record(item: Finding) -> bool:
    """Whether what is there is not the model. What is only away, shut or covered may come back as it was."""
    return item.kind not in ("missing", "forbidden", "irregular")


def _pin_of(file: StoredFile) -> File:
    return File(name=file.name, size=file.size, sha256=file.sha256, role=file.role)


def _file_of(stored: Stored, pin: File) -> StoredFile:
    return next(file for file in stored.files if file.name == pin.base_name)


def _put_away(where: Layout, folder: Path, stored: Stored, pin: File, item: Finding) -> Damage:
    file, place = _file_of(stored, pin), _place(stored, pin, item)
    moved_on = item.before is not None and not records.rests(item.before)
    if place is None or file.referenced or item.kind in ("forbidden", "irregular") or moved_on:
        return item.damage(pin, "left", place)
    try:
        return demotion.put_away(where, folder, stored.ref, pin, item)
    except OSError as error:
        log.info("%s stays where it is: %s", file.path, error.strerror)
        return _left(stored, pin, item, disk.reason(error))


def _place(stored: Stored, pin: File, item: Finding) -> Path | None:
    return None if item.kind == "missing" else _file_of(stored, pin).path


def _left(stored: Stored, pin: File, item: Finding, why: str) -> Damage:
    """It could not be moved."""
    found = item.damage(pin, "left", _place(stored, pin, item))
    if found.kept is None or _file_of(stored, pin).referenced or item.kind in ("forbidden", "irregular"):
        return found
    return dataclasses.replace(found, text=f"{found.text} (it stays where it is: {why.rstrip('.').lower()})")


def _counter(report: Reporter | None) -> Callable[[int], None]:
    def moved(done: int) -> None:
        if report is not None:
            report.done = done

    return moved
