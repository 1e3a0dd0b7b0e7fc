"""Saved prompts on the disk: one folder for each key, with the engine's files and an index of them.

A file belongs to a key, has its size and digest in the index, and was whole when it was entered: it is
written under another name, hashed, renamed, and then listed. What is not listed is removed, and what differs
from its row is never given to an engine. While an engine reads one, its row says so: a file over which an
engine died is found by that and removed. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import xxhash

from appliance.engines.slots import index
from appliance.engines.slots.index import Row
from appliance.engines.slots.rules import Entry, kept
from appliance.engines.slots.wire import Said

log = logging.getLogger("appliance.prompts")
_KEY = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"(?:new-)?[0-9a-f]{16}\.slot")
_NEW = "new-"
_READ = 8 << 20


@dataclass(frozen=True, slots=True)
class Removed:
    """What went from the disk."""

    files: int = 0
    n_bytes: int = 0


class Shelf:
    """All saved prompts of this user. One process may have one; its methods take turns."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._root, self._clock = root, clock
        self._lock = threading.RLock()
        self._writing: set[str] = set()
        """Names from `new_name` that nobody has listed or discarded yet."""

    def folder(self, key: str) -> Path:
        return self._root / key

    def prepare(self, key: str) -> Path:
        """The folder of a key, private to the user. Raises OSError."""
        for folder in (self._root, self.folder(key)):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if folder.is_symlink():
                raise OSError(0, "it is a link")
            folder.chmod(0o700)
        return self.folder(key)

    def new_name(self) -> str:
        """A name to save under; it becomes a listed one by `add`, and ends with `discard` otherwise."""
        name = f"{_NEW}{secrets.token_hex(8)}.slot"
        self._writing.add(name)
        return name

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self._clock()

    def discard(self, key: str, name: str) -> None:
        """Away with what an engine wrote, or still writes, under a `new_name`."""
        with contextlib.suppress(OSError):
            (self.folder(key) / name).unlink(missing_ok=True)
        self._writing.discard(name)

    def free(self) -> int:
        """Bytes left on the disk. Raises OSError."""
        return shutil.disk_usage(self._root).free

    def entries(self, key: str | None = None) -> tuple[Entry, ...]:
        """What is listed, of one key or of all."""
        with self._lock:
            keys = self._keys() if key is None else [key]
            return tuple(row.entry for one in keys for row in index.read(self.folder(one), one))

    def add(self, key: str, name: str, tokens: int, said: Said, used_at: float | None = None) -> Entry:
        """List what an engine has saved under a `new_name`. Raises OSError.

        `used_at`: when a request had it last; None: now.
        """
        new = self.folder(key) / name
        size = _regular(new)
        os.chmod(new, 0o600)
        digest, now = digest_of(new), self._clock()
        entry = Entry(
            key, name.removeprefix(_NEW), tokens, size, digest, now, now if used_at is None else used_at
        )
        with self._lock:
            os.replace(new, self.folder(key) / entry.name)
            self._writing.discard(name)
            index.write(self.folder(key), [*index.read(self.folder(key), key), Row(entry, said)])
        return entry

    def refusal(self, entry: Entry, said: Said) -> str | None:
        """Why an engine that says `said` must not get this file; None: it may.

        From here until `given` its row says that an engine is reading it.
        """
        with self._lock:
            row = next(
                (row for row in index.read(self.folder(entry.key), entry.key) if row.entry == entry), None
            )
            if row is None:
                return "it is not listed"
            if row.given:
                return "an engine ended while it read it"
            if row.said != said:
                return "it is from an engine that says something else of itself"
            try:
                path = self.folder(entry.key) / entry.name
                if _regular(path) != entry.n_bytes or digest_of(path) != entry.digest:
                    return "it is not the file that was saved"
                self._change(entry, lambda one: replace(one, given=True))
            except OSError as error:
                return f"it can't be read ({error.strerror})"
        return None

    def given(self, entry: Entry, used_at: float) -> Entry:
        """An engine has read it well. Raises OSError."""
        used = replace(entry, used_at=used_at)
        with self._lock:
            self._change(entry, lambda one: replace(one, entry=used, given=False))
        return used

    def drop(self, entries: Sequence[Entry]) -> Removed:
        """Remove these. What the system refuses stays listed as read, so that it is never given away."""
        done = Removed()
        with self._lock:
            for entry in entries:
                with contextlib.suppress(OSError):
                    (self.folder(entry.key) / entry.name).unlink(missing_ok=True)
                    done = Removed(done.files + 1, done.n_bytes + entry.n_bytes)
            for key in {entry.key for entry in entries}:
                self._relist(key, {entry.name for entry in entries})
        return done

    def sweep(self, budget: int, age_s: float, *, in_use: frozenset[str] = frozenset()) -> Removed:
        """Remove what is too old, beyond the budget, not listed, or was being read when an engine died.

        In folders `in_use` nothing is touched that is under way: what is being written, or read.
        """
        with self._lock:
            done = Removed()
            for key in self._keys():
                done = _sum(done, self._sweep_folder(key, busy=key in in_use))
            found = kept(self.entries(), budget=budget, age_s=age_s, now=self._clock())
            done = _sum(done, self.drop([entry for entry, _ in found.go]))
            for key in set(self._keys()) - in_use:
                with contextlib.suppress(OSError):
                    if not self.entries(key):
                        (self.folder(key) / index.NAME).unlink(missing_ok=True)
                        self.folder(key).rmdir()
            return done

    def clear(self) -> Removed:
        """Remove all of it; folders stay, since an engine may be told to write there."""
        with self._lock:
            done = Removed()
            for key in self._keys():
                for path in _files(self.folder(key)):
                    with contextlib.suppress(OSError):
                        size = path.lstat().st_size
                        path.unlink()
                        done = _sum(done, Removed(1, size))
                with contextlib.suppress(OSError):
                    (self.folder(key) / index.NAME).unlink(missing_ok=True)
            return done

    def _sweep_folder(self, key: str, *, busy: bool) -> Removed:
        rows = index.read(self.folder(key), key)
        listed = {row.entry.name for row in rows}
        done = Removed()
        spared = listed | self._writing if busy else listed
        for path in _files(self.folder(key)):
            if path.name not in spared:
                with contextlib.suppress(OSError):
                    size = path.lstat().st_size
                    path.unlink()
                    done = _sum(done, Removed(1, size))
        died = [row.entry for row in rows if row.given and not busy]
        return _sum(done, self.drop(died))

    def _change(self, entry: Entry, changed: Callable[[Row], Row]) -> None:
        folder = self.folder(entry.key)
        rows = index.read(folder, entry.key)
        index.write(folder, [changed(row) if row.entry == entry else row for row in rows])

    def _relist(self, key: str, gone: set[str]) -> None:
        folder = self.folder(key)
        rows = []
        for row in index.read(folder, key):
            if row.entry.name not in gone:
                rows.append(row)
            elif (folder / row.entry.name).exists():
                rows.append(replace(row, given=True))
        try:
            index.write(folder, rows)
        except OSError as error:
            log.warning("the index of saved prompts can't be written: %s", error.strerror)

    def _keys(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self._root) if _is_key(entry))
        except OSError:
            return []


def digest_of(path: Path) -> str:
    """xxh3 of the whole file. Raises OSError."""
    state = xxhash.xxh3_128()
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb", buffering=0) as file:
        while data := file.read(_READ):
            state.update(data)
    return state.hexdigest()


def _is_key(entry: os.DirEntry[str]) -> bool:
    return bool(_KEY.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)


def _regular(path: Path) -> int:
    """Its size. Raises OSError when it is no regular file."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "it is no regular file")
    return found.st_size


def _files(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from [Path(one.path) for one in os.scandir(folder) if _FILE.fullmatch(one.name)]


def _sum(one: Removed, other: Removed) -> Removed:
    return Removed(one.files + other.files, one.n_bytes + other.n_bytes)
