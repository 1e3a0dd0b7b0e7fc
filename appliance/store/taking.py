"""Putting proven files in the store: as a second name, as a note where they are, or as a copy."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.catalog import File, ModelRef
from appliance.errors import NotVerified, UsageError
from appliance.store import copying, disk, layout, quarantine, records
from appliance.store.layout import Layout
from appliance.store.progress import Reporter
from appliance.store.prove import Proven
from appliance.store.threads import StopFlag
from appliance.store.types import Stored, StoredFile
from appliance.text import clean_line

How = Literal["link", "reference", "copy"]
OTHER_DISK = "it is on another disk"
_TEMPORARY = ".import-"


@dataclass(frozen=True, slots=True)
class Adopted:
    """A variant that was taken in."""

    stored: Stored | None
    """None: files of it are still missing; a pull fetches only those."""
    how: How | None
    """None = it was here already."""
    why: str | None
    """Why it is no hard link, where that was tried first."""


class _NoLink(Exception):
    """Another disk, or a system that refuses; says why."""


@dataclass(slots=True)
class Taking:
    """One adoption, in a thread, of files that match their pins. Pins may be left out, the first may not."""

    where: Layout
    ref: ModelRef
    pairs: Sequence[tuple[Proven, File]]
    report: Reporter
    stop: StopFlag

    def run(self, how: How | None) -> Adopted:
        folder = self.where.folder(self.ref)
        here = self._here(folder, how)
        if here is not None:
            return Adopted(here, None, "it was here already")
        self._require_outside(how)
        if not all(item.unchanged for item, _ in self.pairs):
            raise self._changed()
        # From here on our own links move the change time of these files.
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob(f"{_TEMPORARY}*"):
                left.unlink()  # names of an import that was killed
            files, done, why = self._taken(folder, how)
            for item, pin in self.pairs:
                item.digests.write(layout.chunks(folder, pin))
                for leftover in (layout.part, layout.state, layout.log):
                    leftover(folder, pin).unlink(missing_ok=True)  # of a download that is not needed now
            whole = len(self.pairs) == len(self.ref.variant.files)
            return Adopted(records.write(folder, self.ref, files) if whole else None, done, why)
        except OSError as error:
            raise disk.write_error(error, folder, sum(item.size for item, _ in self.pairs)) from None

    def moved(self, done: int) -> None:
        """Told by whoever moves bytes."""
        self.report.done = done

    def _here(self, folder: Path, how: How | None) -> Stored | None:
        """The variant as it is recorded, unless a reference is to become more than that."""
        stored = records.pinned(folder, self.ref)
        if stored is None:
            return None
        if how in ("link", "copy") and any(file.referenced for file in stored.files):
            return None
        return stored if records.intact(stored) else None

    def _require_outside(self, how: How | None) -> None:
        """A file of the store can get its record back, but not be a reference or be copied onto itself."""
        inside = Path(os.path.realpath(self.where.root))
        for item, _ in self.pairs:
            if how in ("reference", "copy") and item.path.is_relative_to(inside):
                raise UsageError(f"{item.path} is in the store already.", hint="Import it without `--how`.")

    def _taken(self, folder: Path, how: How | None) -> tuple[list[StoredFile], How, str | None]:
        if how == "copy":
            return self._copied(folder), "copy", None
        if how == "reference":
            return self._referenced(folder), "reference", None
        try:
            return self._linked(folder), "link", None
        except _NoLink as error:
            why = str(error)
        if how == "link":
            raise UsageError(
                f"{self.ref.ref} can't be taken by hard link: {why}.",
                hint="Take it by reference (`--how reference`), or copy it (`--how copy`).",
            )
        return self._referenced(folder), "reference", why

    def _linked(self, folder: Path) -> list[StoredFile]:
        """A second name for each file. All of them, or none."""
        names = list[Path]()
        try:
            for item, pin in self.pairs:
                name = folder / f"{_TEMPORARY}{secrets.token_hex(4)}-{pin.base_name}"
                try:
                    os.link(os.path.realpath(item.path), name)
                except OSError as error:
                    raise _NoLink(reason(error)) from None
                names.append(name)
                if not item.is_same(name.stat()):  # what has our name now, whatever the path means by now
                    raise self._changed()
            placed = [
                self._placed(folder, pin, name) for (_, pin), name in zip(self.pairs, names, strict=True)
            ]
            if not all(
                item.is_same(file.path.stat()) for (item, _), file in zip(self.pairs, placed, strict=True)
            ):
                raise self._changed()  # written to between the hash and what the record would say
            return placed
        finally:
            for name in names:
                name.unlink(missing_ok=True)

    def _placed(self, folder: Path, pin: File, name: Path) -> StoredFile:
        final = layout.final(folder, pin)
        self._make_way(final, pin, name)
        os.replace(name, final)
        layout.sync_folder(folder)
        return records.stored_file(final, pin)

    def _make_way(self, final: Path, pin: File, name: Path | None = None) -> None:
        """What has the final name without being in a record was never proven, or is no longer."""
        if not os.path.lexists(final):
            return
        if name is not None and final.samefile(name):
            final.unlink()  # the same bytes; a rename between two names of one file would do nothing
            return
        quarantine.put_aside(
            self.where, final, pin, ref=self.ref.ref, actual="", source="this disk",
            why="it had no valid record when the model was imported",
        )  # fmt: skip

    def _referenced(self, folder: Path) -> list[StoredFile]:
        why = self._no_reference()
        if why is not None:
            raise UsageError(
                f"{self.ref.ref} can't be taken by reference.", cause=why, hint="Copy it: `--how copy`."
            )
        files = [records.stored_file(item.path, pin, referenced=True) for item, pin in self.pairs]
        if not all(item.is_same(item.path.stat()) for item, _ in self.pairs):
            raise self._changed()
        for _, pin in self.pairs:
            self._make_way(layout.final(folder, pin), pin)
        return files

    def _no_reference(self) -> str | None:
        if len(self.pairs) < len(self.ref.variant.files):
            return "Files of it are missing here, and a reference stands for all of them."
        parts = [(item.path, pin.base_name) for item, pin in self.pairs if pin.part is not None]
        same_folder = len({path.parent for path, _ in parts}) <= 1
        if same_folder and all(path.name == name for path, name in parts):
            return None
        return "Engines find the parts of a set by their names beside the first; these have others."

    def _changed(self) -> NotVerified:
        return NotVerified(
            f"{self.pairs[0][0].path} or a file of it changed while it was imported; nothing of it is used."
            if len(self.pairs) > 1
            else f"{self.pairs[0][0].path} changed while it was imported; nothing of it is used.",
            hint="Let the program that writes to it end, then import it again.",
        )

    def _copied(self, folder: Path) -> list[StoredFile]:
        disk.require(folder, sum(copying.missing(folder, pin) for _, pin in self.pairs))
        found = list[StoredFile]()
        for item, pin in self.pairs:
            self.report.file = pin.base_name
            self._make_way(layout.final(folder, pin), pin)
            final = copying.copy(item, folder, pin, self.stop, self.moved)
            found.append(records.stored_file(final, pin))
            self.report.base, self.report.done = self.report.base + pin.size, 0
        return found


def reason(error: OSError) -> str:
    """Why the system makes no hard link, in words of people."""
    return {
        errno.EXDEV: OTHER_DISK,
        errno.EPERM: "the system allows no hard link to it (another user's file, or links are unknown there)",
        errno.EMLINK: "it has too many names already",
        errno.EOPNOTSUPP: "its file system has no hard links",
    }.get(error.errno or 0, clean_line((error.strerror or str(error)).lower(), 200))
