"""A model file that is on this computer already: verified in place, then linked, or copied."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable
from pathlib import Path

from appliance.catalog import File, FileSource
from appliance.errors import DownloadError, ModelMissing, NotVerified
from appliance.store import copying, firstbytes, layout, regular
from appliance.store.partfile import PartFile
from appliance.store.prove import prove_file
from appliance.store.threads import StopFlag

_READ = 1 << 20


def find(source: FileSource, file: File) -> Path:
    """The file that the source means. Raises ModelMissing."""
    path = Path(source.path).expanduser()
    if path.is_dir():
        path = path / file.name
    if not path.is_file():
        raise ModelMissing(
            f"{path} is not there.",
            hint="Put the file back there, connect its disk, or correct the path in models.toml.",
        )
    return path.resolve()


def digest(path: Path, stop: StopFlag, moved: Callable[[int], None]) -> str:
    """SHA-256 of a whole file. `moved` is told the bytes read so far. Raises OSError, Stopped."""
    found, done = hashlib.sha256(), 0
    view = memoryview(bytearray(_READ))
    with regular.reader(path, follow=True) as data:
        while n_bytes := data.readinto(view):
            stop.check()
            found.update(view[:n_bytes])
            done += n_bytes
            moved(done)
    return found.hexdigest()


def link(path: Path, file: File, final: Path, stop: StopFlag, moved: Callable[[int], None]) -> bool:
    """Verify `path` where it is and give it a second name in the store. False = it must be copied.

    The user's own file is never moved or changed. Raises NotVerified when it is not what the pin says, and
    what `prove_file` raises. The digests of its chunks are kept beside the new name.
    """
    size = path.stat().st_size
    if size != file.size:
        with regular.reader(path, follow=True) as data:
            problem = firstbytes.problem(data.read(firstbytes.WANTED), file.base_name, str(path))
        raise problem or _differs(path, file, size, None)
    item = prove_file(path, stop, moved)
    if item.sha256 != file.sha256:
        raise _differs(path, file, size, item.sha256)
    if not item.unchanged:
        return False  # it is being written; a copy is hashed as it is made
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, final)
    except OSError:
        return False  # another disk, or a file system without links
    if not item.is_same(final.stat()):
        final.unlink()
        return False  # it was replaced while we read it
    item.digests.write(layout.chunks(final.parent, file))
    return True


def _differs(path: Path, file: File, size: int, sha256: str | None) -> NotVerified:
    return NotVerified(
        f"{path} is not the file that the catalog pins; it is not used.",
        cause=f"Expected {file.size} bytes with SHA-256 {file.sha256}, got {size} bytes"
        + (f" with {sha256}." if sha256 else "."),
        hint="Put the right file back there. To take this one as what it is: "
        f"`appliance models import {shlex.quote(str(path))} --id NAME`.",
    )


def copy(path: Path, part: PartFile, stop: StopFlag, moved: Callable[[int], None]) -> None:
    """Copy to `part` what it misses of `path`."""
    with regular.reader(path, follow=True) as data:
        copying.fill(part, data, stop, moved)
        if part.gaps():
            raise DownloadError(
                f"{path} is shorter than the pin says.", hint="Correct its entry, or the file."
            )
