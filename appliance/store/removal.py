"""Deleting, and what that really frees: a hard link frees nothing before its last name goes."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from appliance.errors import ApplianceError, ModelError, ModelMissing
from appliance.store import disk, layout
from appliance.store.layout import Layout
from appliance.store.lock import Lock


class Tally:
    """Counts the bytes that come free while names are removed, or would be.

    A file with several names is counted with the one that goes last; while a name outside stays, it is not
    counted at all. Use one tally for everything that goes together.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], int] = {}

    def freed(self, path: Path) -> int:
        """The bytes that come free when `path` goes, too. Call it once for each name, before that goes."""
        try:
            found = path.lstat()
        except OSError:
            return 0
        if stat.S_ISDIR(found.st_mode):
            return 0
        key = found.st_dev, found.st_ino
        self._names[key] = self._names.get(key, found.st_nlink) - 1
        return disk.used(found) if self._names[key] <= 0 else 0


def tree(path: Path) -> list[Path]:
    """Every file and link under `path`, or `path` itself when it is no folder. Links are not followed."""
    if not path.is_dir() or path.is_symlink():
        return [path]
    return [Path(top) / name for top, folders, names in os.walk(path) for name in _files(top, folders, names)]


def _files(top: str, folders: list[str], names: list[str]) -> list[str]:
    """A link to a folder is a name to remove, not a folder to enter."""
    return sorted(names + [name for name in folders if os.path.islink(os.path.join(top, name))])


def remove(where: Layout, ref: str) -> int:
    """Delete every file of the variant `id:QUANT`, under its lock. Returns the bytes freed.

    Raises ModelMissing when there is none, ModelError while it is being transferred.
    """
    model_id, _, quant = ref.partition(":")
    lock = Lock(where.lock(ref))
    try:
        holder = lock.acquire()
    except OSError as error:
        raise refused(where.root, error) from None
    if holder is not None:
        raise ModelError(
            f"{ref} is being fetched by the process {holder.pid}.",
            hint="Stop that first, or wait for its end.",
        )
    try:
        folders = [f for f in where.folders() if f.parent.name == model_id and layout.quant_of(f) == quant]
        if not folders:
            raise ModelMissing(f"{ref} is not on this disk.", hint="`appliance models list` shows what is.")
        tally = Tally()
        freed = sum(tally.freed(path) for folder in folders for path in tree(folder))
        for folder in folders:
            delete(folder)
            drop_empty(folder.parent)
        return freed
    finally:
        lock.release()


def delete(path: Path) -> None:
    """Remove a file or a whole folder; absent is fine. A record goes first: half a model must not look whole.

    Raises ApplianceError when the system refuses.
    """
    try:
        (path / layout.RECORD).unlink(missing_ok=True)
    except (NotADirectoryError, FileNotFoundError):
        pass
    except OSError as error:
        raise refused(path, error) from None
    try:
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            return
        for top, folders, names in os.walk(path, topdown=False):
            for name in _files(top, folders, names):
                (Path(top) / name).unlink(missing_ok=True)
            Path(top).rmdir()
    except OSError as error:
        raise refused(path, error) from None


def drop_empty(folder: Path) -> None:
    """Remove a model's folder when nothing is in it any more."""
    with contextlib.suppress(OSError):  # not empty, or gone already
        folder.rmdir()


def refused(path: Path, error: OSError) -> ApplianceError:
    """The system did not let us remove `path`."""
    return ApplianceError(
        f"{path} can't be removed.",
        cause=error.strerror or str(error),
        hint="Make its folder writable, or remove it by hand.",
    )
