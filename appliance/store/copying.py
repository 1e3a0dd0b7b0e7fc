"""A file of this computer copied into the store, through the partial file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from appliance.catalog import File
from appliance.errors import ApplianceError, NotVerified
from appliance.store import layout, partfile
from appliance.store.hasher import Hasher
from appliance.store.partfile import Overlong, PartFile
from appliance.store.prove import Proven
from appliance.store.threads import StopFlag

_READ = 1 << 20


def missing(folder: Path, pin: File) -> int:
    """Bytes that a copy still has to write."""
    return max(0, pin.size - partfile.on_disk(layout.part(folder, pin)))


def copy(source: Proven, folder: Path, pin: File, stop: StopFlag, moved: Callable[[int], None]) -> Path:
    """Copy what is missing of a file that matched `pin`; the final name comes last. Blocks.

    What is written is hashed again, so a source that changes meanwhile is noticed. Raises NotVerified,
    DiskFull, Unwritable or Stopped; what was written is kept but for a mismatch.
    """
    part = PartFile(folder, pin)
    hasher = Hasher(part)
    try:
        try:
            part.open(stop, moved)
        except Overlong:
            part.restart()
        hasher.start()
        with source.path.open("rb", buffering=0) as data:
            fill(part, data, stop, moved)
            if part.digests().xxh3 != source.digests.xxh3:  # an older partial file held other bytes
                for index in part.digests().differing(source.digests):
                    part.forget(index)
                fill(part, data, stop, moved)
        if part.gaps() or hasher.digest(stop) != pin.sha256:
            part.restart()
            raise _changed(source)
        hasher.close()
        return part.finish()
    finally:
        hasher.close()
        part.close()


def fill(part: PartFile, data: BinaryIO, stop: StopFlag, moved: Callable[[int], None]) -> None:
    """Copy the bytes that `part` misses; fewer when the source is shorter now."""
    for start, end in part.gaps():
        data.seek(start)
        at = start
        while at < end and (piece := data.read(min(_READ, end - at))):
            stop.check()
            part.write(at, piece)
            at += len(piece)
            moved(part.arrived)


def _changed(source: Proven) -> ApplianceError:
    return NotVerified(
        f"{source.path} changed while it was copied; nothing of it is used.",
        hint="Let the program that writes to it end, then import it again.",
    )
