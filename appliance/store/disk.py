"""Is there room? Asked before a transfer, so that it does not fail at 96 %. And what refusals mean."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from appliance import units
from appliance.errors import ApplianceError, DiskFull, DownloadError
from appliance.store.regular import NotRegular

_RESERVE = 2 * units.GIB
_RESERVE_SHARE = 0.05
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FOLDER_IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
_WORDS = {
    errno.ENOSPC: "The disk is full.",
    errno.EDQUOT: "Your share of the disk is used up.",
    errno.EROFS: "The file system is read-only.",
    errno.EACCES: "This user has no right to write there.",
    errno.EPERM: "This user has no right to do that there.",
    errno.EISDIR: "A folder has the name of a file.",
    errno.ENOTDIR: "A file has the name of a folder.",
}
_BLOCK = 512
"""The unit of `st_blocks`, whatever the block size of the file system."""


def usage(folder: Path) -> tuple[int, int]:
    """(total, free for this user) of the file system that holds `folder`, in bytes."""
    found = shutil.disk_usage(folder)
    return found.total, found.free


def reserve(total: int) -> int:
    """Bytes to leave free: 2 GiB, or 5 % of a disk where that is less."""
    return min(_RESERVE, int(total * _RESERVE_SHARE))


def require(folder: Path, missing: int) -> None:
    """Raise DiskFull unless `missing` bytes and the reserve fit on the file system of `folder`."""
    total, free = usage(folder)
    kept = reserve(total)
    lacking = missing + kept - free
    if missing > 0 and lacking > 0:
        raise DiskFull(
            f"The disk can't hold this model: {units.size(lacking)} more is needed.",
            cause=f"{units.size(missing)} is still to be written, {units.size(kept)} stays in reserve, "
            f"and {units.size(free)} is free under {folder}.",
            hint="Free some space (`appliance models rm`), or set APPLIANCE_HOME to a larger disk.",
        )


def write_error(error: OSError, path: Path, missing: int) -> ApplianceError:
    """What to tell the user when writing to `path` failed with `missing` bytes to go."""
    if is_full(error):
        return DiskFull(
            f"The disk is full: {units.size(missing)} of {path.name.removesuffix('.part')} is still to come.",
            cause=error.strerror,
            hint="Free some space and pull again; what has arrived is kept.",
        )
    if error.errno == errno.EFBIG:
        return DownloadError(
            f"The file system under {path.parent} can't hold a file this large.",
            cause=error.strerror,
            hint="Set APPLIANCE_HOME to a disk with another file system.",
        )
    if error.errno == errno.ENAMETOOLONG:
        return DownloadError(
            f"The file system under {path.parent} can't hold a name this long.",
            cause=f"{path.name}: {error.strerror}.",
            hint="Set APPLIANCE_HOME to a folder with a shorter path or another file system.",
        )
    return DownloadError(
        f"{path} can't be written.", cause=reason(error), hint=remedy(error, path, "Make the folder writable")
    )


def is_full(error: OSError) -> bool:
    """The disk, or this user's share of it, has no room."""
    return error.errno in _FULL


def reason(error: OSError) -> str:
    """Why the system refused, in a sentence for people."""
    if isinstance(error, NotRegular):
        return (error.strerror or "").capitalize() + "."
    return _WORDS.get(error.errno or 0, error.strerror or str(error))


def remedy(error: OSError, path: Path, usual: str) -> str:
    """What a person can do about a refusal to write `path`; `usual` begins the advice about rights."""
    elsewhere = "or set APPLIANCE_HOME to a folder that can be written."
    if isinstance(error, NotRegular):
        return error.hint
    if is_full(error):
        return f"Free some space (`appliance models rm`), {elsewhere}"
    if error.errno == errno.EROFS:
        return f"Mount it writable, {elsewhere}"
    if error.errno in _FOLDER_IN_THE_WAY:
        return f"Move {error.filename2 or error.filename or path} away, then try again."
    return f"{usual}, {elsewhere}"


def used(found: os.stat_result) -> int:
    """Bytes that a file takes on its disk: holes take none, and the last block counts whole.

    Where the system does not say (Windows), its length.
    """
    blocks: int | None = getattr(found, "st_blocks", None)
    return found.st_size if blocks is None else blocks * _BLOCK
