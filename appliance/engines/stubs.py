"""A private folder for the stubs of one measurement, gone at its end; what killed runs left goes with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from appliance import processes
from appliance.paths import Paths

_NAME = "stubs"
_FOREIGN_S = 3_600.0
"""Age from which a folder goes whose owner can't be told."""


@contextlib.contextmanager
def scratch(paths: Paths) -> Iterator[Path]:
    """An empty folder of this process alone (0700) under the cache. Raises OSError."""
    home = paths.cache / _NAME
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    _clear(home)
    pid = os.getpid()
    folder = home / f"{pid}-{processes.start_ticks(pid) or 0}-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear(home: Path) -> None:
    """Remove the folders of processes that are gone. What can't be removed stays for a later run."""
    with contextlib.suppress(OSError), os.scandir(home) as entries:
        for entry in list(entries):
            if not _in_use(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _in_use(entry: os.DirEntry[str]) -> bool:
    pid, _, rest = entry.name.partition("-")
    ticks = rest.partition("-")[0]
    if pid.isdecimal() and ticks.isdecimal():
        return processes.is_same(int(pid), None, int(ticks) or None)
    with contextlib.suppress(OSError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime < _FOREIGN_S
    return True
