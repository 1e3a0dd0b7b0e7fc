"""A file with further names on this disk (a snapshot) gets bytes of its own before it is written."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from appliance.store import chunks, regular
from appliance.store.threads import StopFlag

_READ = 1 << 20


def is_shared(path: Path) -> bool:
    """Whether the file has another name. False when there is none."""
    try:
        return path.lstat().st_nlink > 1
    except OSError:
        return False


def unshare(path: Path, stop: StopFlag) -> None:
    """Put a copy in place of a shared file, holes as holes; the other names keep the old one.

    Raises OSError (NotRegular among them) and Stopped; the file is then as it was.
    """
    if not is_shared(path):
        return
    for left in path.parent.glob(f".{path.name}.????????"):
        left.unlink()  # of one that was killed; we hold the lock of this folder
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    source = regular.open_file(path)
    try:
        target = regular.open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            _copy(source, target, stop)
        finally:
            os.close(target)
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    finally:
        os.close(source)


def _copy(source: int, target: int, stop: StopFlag) -> None:
    size = os.fstat(source).st_size
    view = memoryview(bytearray(_READ))
    at = _data_from(source, 0, size)
    while at < size:
        stop.check()
        n_bytes = chunks.read_at(source, view[: min(_READ, size - at)], at)
        if n_bytes == 0:
            break
        chunks.write_at(target, view[:n_bytes], at)
        at = _data_from(source, at + n_bytes, size)
    os.ftruncate(target, size)


def _data_from(handle: int, at: int, size: int) -> int:
    """The first byte from `at` on that is not in a hole; `size` when only a hole follows."""
    if at >= size:
        return size
    try:
        return os.lseek(handle, at, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else at  # else this file system does not say
