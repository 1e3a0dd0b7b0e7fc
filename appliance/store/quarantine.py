"""Files that failed their check are kept aside, with a note why, until the user removes them."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from pathlib import Path

from appliance.catalog import File
from appliance.errors import NotVerified
from appliance.store import layout


def put_aside(
    where: layout.Layout, path: Path, file: File, *, ref: str, actual: str, source: str, why: str
) -> Path:
    """Move `path` to the quarantine folder and write its note. Returns the new path.

    `actual` is its SHA-256 (or empty when it was not computed), `source` a host or package, without secrets.
    Raises OSError, and then nothing was moved.
    """
    where.quarantine.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    target = where.quarantine / f"{stamp}-{secrets.token_hex(3)}-{file.base_name}"
    n_bytes = path.stat().st_size
    note = {
        "ref": ref,
        "file": file.base_name,
        "why": why,
        "expected": {"sha256": file.sha256, "size": file.size},
        "actual": {"sha256": actual or None, "size": n_bytes},
        "source": source,
        "time": time.time(),
    }
    told = target.with_name(target.name + layout.NOTE)
    layout.write_json(told, note)  # first: on a full disk nothing moves without it
    try:
        _move(path, target)
    except OSError:
        told.unlink(missing_ok=True)
        raise
    return target


def _move(path: Path, target: Path) -> None:
    """Only to another disk a copy is made: a rename that is refused would be refused the removal, too."""
    try:
        os.rename(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(path, target)


def not_verified(file: File, actual: str, n_bytes: int, source: str, kept: Path) -> NotVerified:
    """The error for a file whose size or hash is not that of the pin."""
    return NotVerified(
        f"{file.base_name} is not the file that the catalog pins; it is not used.",
        cause=f"Expected {file.size} bytes with SHA-256 {file.sha256}, "
        f"got {n_bytes} bytes with {actual or 'another content'} from {source}.",
        hint=f"It is kept as {kept}. Pull again; if that fails, too, {source} has other bytes than the pin.",
    )
