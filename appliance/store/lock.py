"""One worker per variant, over all processes. The lock file names its owner and carries its progress.

Life or death of the owner decides, not an age: the file holds pid and start time of the process, so a lock
that `kill -9` left behind is taken over at once, also when the pid was given to another process. Only for a
lock of another computer (a shared folder) does silence count: its processes can't be seen from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance import processes
from appliance.errors import ApplianceError
from appliance.store import layout

_HEARTBEAT_S = 0.25
_FOREIGN_SILENCE_S = 180.0
_OURS: set[str] = set()
"""Tokens of the locks that this process holds: a file with our pid but another token is left over."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lock, and what it last said about its work."""

    pid: int
    started: float | None
    ticks: int | None
    host: str
    token: str
    alive_at: float
    progress: dict[str, Any]

    @property
    def alive(self) -> bool:
        """False when the owner can't be at work any more."""
        if self.host != platform.node():
            return time.time() - self.alive_at < _FOREIGN_SILENCE_S
        if self.pid == os.getpid():
            return self.token in _OURS
        return processes.is_same(self.pid, self.started, self.ticks, hidden=True)


class Lock:
    """The lock file of one variant."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = secrets.token_hex(8)
        self._started = processes.start_time(os.getpid())
        self._ticks = processes.start_ticks(os.getpid())
        self._mutex = threading.Lock()
        """A heartbeat in its thread must not write the file again after its release."""

    def owner(self) -> Owner | None:
        """The living owner; None when nobody holds the lock."""
        found = _read(self._path)
        return found if found is not None and found.alive else None

    def acquire(self) -> Owner | None:
        """Take the lock. None = it is ours; else the living owner who holds it."""
        with _guard(self._path.with_name(".guard")):
            holder = self.owner()
            if holder is not None and holder.token != self._token:
                return holder
            _OURS.add(self._token)
            try:
                self._write({})
            except BaseException:
                _OURS.discard(self._token)
                raise
        return None

    def release(self) -> None:
        """Give the lock back; harmless when it is not ours."""
        with _guard(self._path.with_name(".guard")), self._mutex:
            _OURS.discard(self._token)
            found = _read(self._path)
            if found is not None and found.token == self._token:
                self._path.unlink(missing_ok=True)

    @contextlib.asynccontextmanager
    async def heart(self, progress: Callable[[], dict[str, Any]]) -> AsyncIterator[None]:
        """Write the owner's progress into the file while the body runs."""
        beating = asyncio.create_task(self._beat(progress))
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait({beating})

    async def _beat(self, progress: Callable[[], dict[str, Any]]) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            with contextlib.suppress(OSError):  # a full disk must not end the work that may free it
                await asyncio.to_thread(self._write, progress())

    def _write(self, progress: dict[str, Any]) -> None:
        document = {
            "pid": os.getpid(),
            "started": self._started,
            "ticks": self._ticks,
            "host": platform.node(),
            "token": self._token,
            "alive_at": time.time(),
            "progress": progress,
        }
        with self._mutex:
            if self._token in _OURS:
                layout.write_json(self._path, document, durable=False)


def acquire(lock: Lock) -> Owner | None:
    """`lock.acquire()` in words of people. Raises ApplianceError when the folder can't be written."""
    try:
        return lock.acquire()
    except OSError as error:
        raise ApplianceError(
            "The model folder can't be written.",
            cause=error.strerror or str(error),
            hint="Make it writable, or set APPLIANCE_HOME to a folder that is.",
        ) from None


def stale(path: Path) -> bool:
    """Whether a lock file is there that nobody holds any more."""
    found = _read(path)
    return path.is_file() and (found is None or not found.alive)


def drop_stale(path: Path) -> bool:
    """Remove a lock file that nobody holds. False = somebody has taken it meanwhile, or it is gone."""
    with _guard(path.with_name(".guard")):
        if not stale(path):
            return False
        path.unlink(missing_ok=True)
    return True


def _read(path: Path) -> Owner | None:
    found = layout.read_json(path)
    if found is None:
        return None
    try:
        return Owner(
            int(found["pid"]), _number(found["started"]), found.get("ticks"), str(found["host"]),
            str(found["token"]), float(found["alive_at"]), dict(found["progress"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def _number(value: object) -> float | None:
    """A start time that could not be read was written as null."""
    return None if value is None else float(str(value))


@contextlib.contextmanager
def _guard(path: Path) -> Iterator[None]:
    """Serialise looking at a lock file and writing it, for the milliseconds that this takes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
