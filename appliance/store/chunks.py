"""Cheap digests (xxh3, 64 bits) of each 8 MiB of a file, beside its SHA-256.

The SHA-256 says whether a file is the pinned one. The chunk digests say *where* it is not, so that a damaged
file costs the chunks that differ and not the whole transfer. They prove nothing by themselves.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import xxhash

from appliance.store import layout, regular
from appliance.store.threads import StopFlag

CHUNK = 8 << 20
"""Bytes of a chunk; the last one of a file is shorter."""
_READ = 1 << 20
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ChunkDigests:
    """What each chunk of a file was when the whole had this SHA-256."""

    sha256: str
    chunk: int
    """Bytes of a chunk."""
    xxh3: tuple[str, ...]
    """16 hex digits for each chunk, in order."""

    def write(self, path: Path) -> None:
        """Put the `.chunks` document at `path`. Raises OSError."""
        document = {"v": _VERSION, "chunk": self.chunk, "sha256": self.sha256, "xxh3": list(self.xxh3)}
        layout.write_json(path, document)

    def differing(self, other: ChunkDigests) -> tuple[int, ...]:
        """Indexes of the chunks that are not the same in `other`; missing and further ones differ."""
        if self.chunk != other.chunk:
            raise ValueError("digests of chunks of different sizes can't be compared")
        common = min(len(self.xxh3), len(other.xxh3))
        changed = [index for index in range(common) if self.xxh3[index] != other.xxh3[index]]
        return (*changed, *range(common, max(len(self.xxh3), len(other.xxh3))))


def read(path: Path, size: int, sha256: str) -> ChunkDigests | None:
    """The `.chunks` document at `path`; None when it is absent, broken or of another file."""
    found = layout.read_json(path)
    if found is None or found.get("v") != _VERSION or found.get("sha256") != sha256:
        return None
    chunk, xxh3 = found.get("chunk"), found.get("xxh3")
    if not is_chunk(chunk) or not isinstance(xxh3, list) or len(xxh3) != count(size, chunk):
        return None
    if not all(isinstance(item, str) and len(item) == 16 for item in xxh3):
        return None
    return ChunkDigests(sha256, chunk, tuple(xxh3))


def is_chunk(value: object) -> TypeGuard[int]:
    """Can `value`, from a file, be the size of a chunk?"""
    return isinstance(value, int) and not isinstance(value, bool) and 4096 <= value <= 1 << 30


def count(size: int, chunk: int) -> int:
    """How many chunks `size` bytes have."""
    return -(-size // chunk)


def digests_of(
    path: Path, stop: StopFlag, moved: Callable[[int], None], *, chunk: int = CHUNK
) -> ChunkDigests:
    """Read a whole file. `moved` is told the bytes read so far. Raises OSError, Stopped."""
    whole, part, found, done = hashlib.sha256(), xxhash.xxh3_64(), list[str](), 0
    view = memoryview(bytearray(min(_READ, chunk)))
    with regular.reader(path, follow=True) as data:
        while n_bytes := data.readinto(view[: min(len(view), chunk - done % chunk)]):
            stop.check()
            whole.update(view[:n_bytes])
            part.update(view[:n_bytes])
            done += n_bytes
            if done % chunk == 0:
                found.append(part.hexdigest())
                part.reset()
            moved(done)
    if done % chunk:
        found.append(part.hexdigest())
    return ChunkDigests(whole.hexdigest(), chunk, tuple(found))


def read_at(handle: int, view: memoryview, at: int) -> int:
    """Fill `view` from byte `at` on; fewer only where the file ends. Returns the bytes read."""
    done = 0
    while done < len(view):
        n_bytes = os.preadv(handle, [view[done:]], at + done)
        if n_bytes == 0:
            break
        done += n_bytes
    return done


def write_at(handle: int, data: bytes | memoryview, at: int) -> None:
    """Write all of `data` at byte `at`. Raises OSError."""
    rest = memoryview(data)
    while rest:
        n_bytes = os.pwrite(handle, rest, at)
        rest, at = rest[n_bytes:], at + n_bytes
