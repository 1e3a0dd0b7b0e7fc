"""`daemon.json` and the lock that keeps a second daemon of the same user from starting."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from appliance import __version__, processes
from appliance.errors import DaemonRunning
from appliance.paths import Paths

LOCK_NAME = "daemon.lock"
_LOCK_BYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """What a client needs to find and trust the daemon. Written with mode 0600."""

    pid: int
    start_time: float
    """Unix time at which the process started, as the system says it: a reused pid has another one."""
    version: str
    url: str
    """The gateway's address, without `/v1`."""
    token: str
    """Opens the control plane; new at every start."""
    start_ticks: int | None = None
    """Linux: the start in clock ticks since boot, which no change of the wall clock moves."""


class DaemonLock:
    """Held by the kernel for the life of the process, so `kill -9` frees it."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Raises DaemonRunning, which says where the first one serves."""
        file = (self._paths.state / LOCK_NAME).open("a+", encoding="utf-8")
        if not _try_lock(file):
            owner = ""
            with contextlib.suppress(OSError):  # Windows does not let a locked byte be read
                file.seek(0)
                owner = file.read(20).strip()
            file.close()
            raise _running(self._paths, owner)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def new_record(url: str) -> Record:
    """The record of this process."""
    pid = os.getpid()
    return Record(
        pid=pid,
        start_time=processes.start_time(pid) or time.time(),
        version=__version__,
        url=url,
        token=secrets.token_urlsafe(32),
        start_ticks=processes.start_ticks(pid),
    )


def write(paths: Paths, record: Record) -> None:
    """Replace `daemon.json` in one step."""
    temporary = paths.daemon_file.with_suffix(".new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump(asdict(record), out)
    temporary.replace(paths.daemon_file)


def remove(paths: Paths, record: Record) -> None:
    """Take our own `daemon.json` away; one that another daemon wrote meanwhile stays."""
    found = read(paths.daemon_file)
    if found is not None and found.pid == record.pid and found.token == record.token:
        paths.daemon_file.unlink(missing_ok=True)


def read(file: Path) -> Record | None:
    """The record on disk, or None when there is none that can be read."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return Record(
            int(found["pid"]),
            float(found["start_time"]),
            str(found["version"]),
            str(found["url"]),
            str(found["token"]),
            int(found["start_ticks"]) if found.get("start_ticks") is not None else None,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _running(paths: Paths, owner: str) -> DaemonRunning:
    found = read(paths.daemon_file)
    where = f"It is just starting or stopping (pid {owner or 'unknown'})."
    if found is not None:
        where = f"It serves {found.url}/v1 (pid {found.pid})."
    return DaemonRunning(
        "A daemon is already running here.",
        cause=where,
        hint="Use it as it is, or stop it with `appliance down`. A second one needs its own APPLIANCE_HOME.",
    )


def _try_lock(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return _try_lock_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _try_lock_windows(file: IO[str]) -> bool:
    import msvcrt

    file.seek(_LOCK_BYTE)  # beyond the text, and the same byte for everyone
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    return True
