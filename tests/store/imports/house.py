"""A store, a file of another program, and how to tell that nobody touched it."""

from __future__ import annotations

import os
from pathlib import Path

from appliance.catalog import FileSource, ModelRef
from appliance.paths import Paths
from appliance.store import Store
from appliance.store.layout import Layout
from appliance.store.taking import Adopted, How
from appliance.store.types import OnProgress, no_progress
from tests.store.helpers import MIB, gguf, made, pin

BODY = gguf(9 * MIB)  # more than one chunk


def put(path: Path, body: bytes) -> None:
    """A new file in place of the old one."""
    path.unlink(missing_ok=True)
    path.write_bytes(body)


def change(path: Path, *, at: int = MIB, keep_times: bool = True) -> None:
    """Write into a file; `keep_times` hides it from everything but a hash and the change time."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\0other\0")
    if keep_times:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


class Disk:
    """A store and how to ask it."""

    def __init__(self, paths: Paths, store: Store) -> None:
        self.where = Layout(paths.models)
        self.store = store

    async def adopt(
        self, ref: ModelRef, *files: Path | None, how: How | None = None, seen: OnProgress = no_progress
    ) -> Adopted:
        return await self.store.adopt(ref, files, how, seen)

    def written(self) -> int:
        """Bytes that the store takes on its disk beyond names of files that others have, too."""
        found = [p.lstat() for p in self.where.root.rglob("*") if p.is_file() and not p.is_symlink()]
        return sum(stat.st_blocks * 512 for stat in found if stat.st_nlink == 1)


def ref_of(body: bytes = BODY) -> ModelRef:
    return made(FileSource(kind="file", path="/nowhere/tiny.gguf"), pin("tiny.gguf", body))


def state_of(path: Path) -> tuple[bytes, int, int, int]:
    """What must not change: the bytes, the inode, the time and the mode of a file."""
    stat = path.stat()
    return path.read_bytes(), stat.st_ino, stat.st_mtime_ns, stat.st_mode
