"""Looking into folders that other programs made, with an end: no loop, no device, no tree without bottom."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from appliance.store.caches.types import Bounds, Skipped
from appliance.text import clean_line

_MAGIC = b"GGUF"
_OURS = "the store of this program: what is in it is here already, or failed its check"


class Look:
    """One look below one root. Counts what it reads and notes what it passes over."""

    def __init__(self, root: Path, bounds: Bounds) -> None:
        self.root = root
        self.bounds = bounds
        self._real = Path(os.path.realpath(root))
        self._ours = None if bounds.ours is None else Path(os.path.realpath(bounds.ours))
        self._left = bounds.entries
        self._skipped: list[Skipped] = []

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        return tuple(self._skipped)

    def skip(self, path: Path, why: str) -> None:
        """Note that `path` is passed over."""
        if len(self._skipped) < self.bounds.skipped:
            self._skipped.append(Skipped(clean_line(str(path), 300), clean_line(why, 200)))

    def names(self, folder: Path) -> list[os.DirEntry[str]]:
        """What `folder` holds, by name; nothing when it can't be read or the look has cost enough."""
        found: list[os.DirEntry[str]] = []
        if self._left < 0:
            return found
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        limit = self.bounds.entries
                        self.skip(folder, f"more than {limit} files; the rest of the tree is not looked at")
                        break
                    found.append(entry)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.skip(folder, reason(error))
        return sorted(found, key=lambda entry: entry.name)

    def folders(self, folder: Path) -> list[Path]:
        """The folders in `folder`. Links to folders are not followed: they may lead round in a circle."""
        return self._sorted_out(folder)[0]

    def tree(
        self, folder: Path, depth: int | None = None, *, hidden: bool = True
    ) -> Iterator[tuple[Path, list[Path]]]:
        """(folder, its files) of a whole tree, `depth` folders deep, with or without hidden folders.

        The store of this program is passed over.
        """
        left = self.bounds.depth if depth is None else depth
        if self._is_store(folder):
            self.skip(folder, _OURS)
            return
        folders, files = self._sorted_out(folder)
        yield folder, files
        for below in folders:
            if below.name.startswith(".") and not hidden:
                self.skip(below, "a hidden folder; name it to look into it")
            elif left == 0:
                self.skip(below, "too many folders deep")
            else:
                yield from self.tree(below, left - 1, hidden=hidden)

    def _is_store(self, folder: Path) -> bool:
        """The store's folder, or one in it that holds no models: quarantine and locks."""
        if self._ours is None:
            return False
        real = Path(os.path.realpath(folder))
        return real == self._ours or self._is_put_aside(real)

    def _is_put_aside(self, real: Path) -> bool:
        if self._ours is None or not real.is_relative_to(self._ours):
            return False
        return any(name.startswith(".") for name in real.relative_to(self._ours).parts)

    def _sorted_out(self, folder: Path) -> tuple[list[Path], list[Path]]:
        folders, files = list[Path](), list[Path]()
        for entry in self.names(folder):
            path = Path(entry.path)
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif entry.is_symlink() and entry.is_dir():
                    self.skip(path, "a link to a folder; import it by its path")
                else:
                    files.append(path)
            except OSError as error:  # a circle of links
                self.skip(path, reason(error))
        return folders, files

    def size(self, path: Path, what: str = "the file") -> int | None:
        """Bytes of a GGUF file below the root; None, with the reason noted, for anything else."""
        try:
            if not path.name.isprintable():
                raise _UnfitError("its name has characters that can't be shown")
            with self._inside(path) as data:
                if data.read(len(_MAGIC)) != _MAGIC:
                    raise _UnfitError("it is no GGUF file")
                return os.fstat(data.fileno()).st_size
        except FileNotFoundError:
            self.skip(path, f"{what} is missing")
        except OSError as error:
            self.skip(path, reason(error))
        return None

    def document(self, path: Path) -> dict[str, Any] | None:
        """A small JSON object below the root; None, with the reason noted, for anything else."""
        try:
            with self._inside(path) as data:
                raw = data.read(self.bounds.document + 1)
            if len(raw) > self.bounds.document:
                raise _UnfitError(f"longer than {self.bounds.document} bytes")
            found = parsed(raw)
            if found is None:
                raise _UnfitError("it is no JSON object")
        except OSError as error:
            self.skip(path, reason(error))
            return None
        return found

    def _inside(self, path: Path) -> BinaryIO:
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self._real):
            raise _UnfitError(f"a link that leaves {self.root}; import it by its path")
        if self._is_put_aside(real):
            raise _UnfitError("it is in the quarantine of this program: it failed its check")
        return opened(path)


class _UnfitError(OSError):
    """Why a file is passed over, in words of ours."""


def opened(path: Path) -> BinaryIO:
    """A regular file, open for reading. A pipe or device raises OSError and is never waited for."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _UnfitError("it is no regular file")
        return os.fdopen(handle, "rb", buffering=0)
    except BaseException:
        os.close(handle)
        raise


def parsed(raw: bytes) -> dict[str, Any] | None:
    """A JSON object; None for anything else, nested beyond reason included."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def reason(error: OSError) -> str:
    """Why the system refused, in a few words."""
    return str(error) if isinstance(error, _UnfitError) else (error.strerror or str(error)).lower()
