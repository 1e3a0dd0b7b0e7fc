"""Deleting, and what that really frees: a hard link frees nothing before its last name goes."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from appliance.errors import ApplianceError, ModelMissing
from appliance.store import disk, layout
from appliance.store import lock as locks
from appliance.store.layout import Layout
from appliance.store.lock import Lock, Owner
from appliance.store.regular import NotRegular


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


def remove(where: Layout, ref: str, only: Path | None = None) -> int:
    """Delete every file of the variant `id:QUANT`, under its lock. Returns the bytes freed.

    `only` is the folder of one set of pins, where those of others stay.

    Works on a full disk, too. Raises ModelMissing when there is none, ModelError while it is transferred.
    """
    with cleared(where, ref) as holder:
        if holder is not None:
            raise locks.busy(ref, holder)
        folders = [folder for folder in where.folders_of(ref) if only in (None, folder)]
        if not folders:
            raise ModelMissing(f"{ref} is not on this disk.", hint="`appliance models list` shows what is.")
        tally = Tally()
        freed = sum(tally.freed(path) for folder in folders for path in tree(folder))
        for folder in folders:
            delete(folder)
            drop_empty(folder.parent)
        return freed


@contextlib.contextmanager
def cleared(where: Layout, ref: str) -> Iterator[Owner | None]:
    """`Lock.clearing` of a variant, in words of people. Raises ApplianceError when it can't be taken."""
    path = where.lock(ref)
    with contextlib.ExitStack() as stack:
        try:
            holder = stack.enter_context(Lock(path).clearing())
        except OSError as error:
            raise locks.unwritable(error, path) from None
        yield holder


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
    hints = {
        errno.EROFS: "Mount it writable, then try again.",
        errno.ENOTEMPTY: "Something in it may not be read or came just now; look, and try again.",
    }
    usual = "Give this user the right to read and to write there, or remove it by hand."
    return ApplianceError(
        f"{path} can't be removed.",
        cause=disk.reason(error),
        hint=error.hint if isinstance(error, NotRegular) else hints.get(error.errno or 0, usual),
    )
