"""The one way to open a file of the store: it must be a regular file.

A pipe, a device or a socket under the name of a model would keep whoever opens it waiting for ever, and a
link would let bytes go where the user did not mean them to.
"""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path

__all__ = ["NotRegular", "kind_of", "open_file", "reader"]

_FLAGS: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegular(OSError):
    """Something else has the name of a file. `strerror` says what, for people."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
        self.kind = kind
        """Like "a folder", "a pipe" ..."""

    @property
    def hint(self) -> str:
        """What a person can do about it."""
        return f"Move {self.filename} away, then try again: nothing is read from it or written to it."


def open_file(path: Path, flags: int = os.O_RDONLY, *, follow: bool = False, mode: int = 0o644) -> int:
    """`os.open` that never waits and gives a regular file only. The caller closes the handle.

    `follow`: the name may be a link to one, as where a user put a link to a model of their own. Raises
    NotRegular, or the OSError of the system (FileNotFoundError where nothing has the name).
    """
    kind = kind_of(path, follow=follow)
    if kind is not None:
        raise NotRegular(path, kind)
    try:
        handle = os.open(path, flags | _FLAGS | (0 if follow else _NOFOLLOW), mode)
    except OSError:
        kind = kind_of(path, follow=follow)  # it came between the look and the opening
        if kind is not None:
            raise NotRegular(path, kind) from None
        raise
    try:
        kind = _kind(os.fstat(handle).st_mode)
        if kind is not None:
            raise NotRegular(path, kind)
    except BaseException:
        os.close(handle)
        raise
    return handle


def reader(path: Path, *, follow: bool = False) -> FileIO:
    """`open_file` for reading, without a buffer."""
    return FileIO(open_file(path, follow=follow), "rb")


def kind_of(path: Path, *, follow: bool = False) -> str | None:
    """What has the name where that is no regular file: "a folder", "a pipe" ...; None also for nothing."""
    try:
        return _kind(os.stat(path, follow_symlinks=follow).st_mode)
    except OSError:
        return None


def _kind(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    return next((name for is_one, name in _KINDS if is_one(mode)), "something else")
