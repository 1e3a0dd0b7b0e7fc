"""One worker per variant, over all processes. The lock file names its owner and carries its progress.

Life or death of the owner decides, not an age: the file holds pid and start time of the process, so a lock
that `kill -9` left behind is taken over at once, also when the pid was given to another process. Only for a
lock of another computer (a shared folder), or of a process whose start nobody could read, does silence count.

Every look at a lock file and every change of it happens under the kernel's lock of `.guard`. Whoever removes
on a full disk, where no lock file can be written, keeps that until the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
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
from appliance.errors import ApplianceError, DiskFull, ModelError
from appliance.store import disk, layout, regular
from appliance.text import clean_line

log = logging.getLogger("appliance.store")

_HEARTBEAT_S = 0.25
_SILENCE_S = 180.0
"""Whoever is at work writes four times a second; who wrote nothing for so long has ended, or the link has."""
_PIDS = 1 << 31
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
        """False when the owner can't be at work any more.

        A sign of life from the future counts as none: clocks differ by seconds, not by minutes.
        """
        heard = abs(time.time() - self.alive_at) < _SILENCE_S
        if self.host != platform.node():
            return heard
        if self.pid == os.getpid():
            return self.token in _OURS
        if self.started is None and self.ticks is None and not heard:
            return False  # any process may have its number by now
        return processes.is_same(self.pid, self.started, self.ticks, hidden=True)

    @property
    def who(self) -> str:
        """For people: "the process 12", with its computer where that is another one."""
        where = "" if self.host == platform.node() else f" on {clean_line(self.host, 60)}"
        return f"the process {self.pid}{where}"


class Lock:
    """The lock file of one variant."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = secrets.token_hex(8)
        self._started = processes.start_time(os.getpid())
        self._ticks = processes.start_ticks(os.getpid())
        self._mutex = threading.Lock()
        """A heartbeat in its thread must not write the file again after its release."""

    @property
    def path(self) -> Path:
        return self._path

    def owner(self) -> Owner | None:
        """The living owner; None when nobody holds the lock."""
        found = _read(self._path)
        return found if found is not None and found.alive else None

    def acquire(self) -> Owner | None:
        """Take the lock. None = it is ours; else the living owner who holds it. Raises OSError."""
        with _guard(self._path):
            holder = self._other()
            if holder is None:
                self._take()
        return holder

    @contextlib.contextmanager
    def clearing(self) -> Iterator[Owner | None]:
        """Hold the lock while files go away. None = it is ours; else the living owner, who keeps it.

        Removing must work on a full disk, too, where no lock file can be written: then nobody else gets past
        the guard until this has ended. Raises OSError when the folder can't be written for another reason.
        """
        with contextlib.ExitStack() as guard:
            guard.enter_context(_guard(self._path))
            holder, written = self._other(), False
            if holder is None:
                try:
                    self._take()
                    written = True
                except OSError as error:
                    if not disk.is_full(error):
                        raise
            if holder is not None or written:
                guard.close()
            try:
                yield holder
            finally:
                if written:
                    self.release()

    def _other(self) -> Owner | None:
        holder = self.owner()
        return holder if holder is not None and holder.token != self._token else None

    def _take(self) -> None:
        _OURS.add(self._token)
        try:
            self._write({})
        except BaseException:
            _OURS.discard(self._token)
            raise

    def release(self) -> None:
        """Give the lock back; harmless when it is not ours. Never raises: the work that it ends counts."""
        if self._token not in _OURS:
            return
        try:
            with _guard(self._path), self._mutex:
                _OURS.discard(self._token)
                found = _read(self._path)
                if found is not None and found.token == self._token:
                    self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s can't be removed: %s", self._path, error.strerror)
        finally:
            _OURS.discard(self._token)

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
        raise unwritable(error, lock.path) from None


def busy(ref: str, holder: Owner) -> ModelError:
    """The error of who needs the lock of `id:QUANT` while another one holds it."""
    return ModelError(
        f"{ref} is being fetched by {holder.who}.", hint="Stop that first, or wait for its end."
    )


def unwritable(error: OSError, path: Path) -> ApplianceError:
    """Why no lock can be written at `path`, in words of people."""
    kind = DiskFull if disk.is_full(error) else ApplianceError
    return kind(
        "The model folder can't be written.",
        cause=disk.reason(error),
        hint=disk.remedy(error, path, "Make it writable"),
    )


def stale(path: Path) -> bool:
    """Whether a lock file is there that nobody holds any more."""
    found = _read(path)
    return path.is_file() and (found is None or not found.alive)


def drop_stale(path: Path) -> bool:
    """Remove a lock file that nobody holds. False = somebody has taken it meanwhile, or it is gone."""
    with _guard(path):
        if not stale(path):
            return False
        path.unlink(missing_ok=True)
    return True


def _read(path: Path) -> Owner | None:
    found = layout.read_json(path)
    if found is None:
        return None
    try:
        owner = Owner(
            int(found["pid"]), _number(found["started"]), found.get("ticks"), str(found["host"]),
            str(found["token"]), float(found["alive_at"]), dict(found["progress"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return owner if 0 < owner.pid < _PIDS else None


def _number(value: object) -> float | None:
    """A start time that could not be read was written as null."""
    return None if value is None else float(str(value))


@contextlib.contextmanager
def _guard(path: Path) -> Iterator[None]:
    """Serialise looking at the lock file `path` and writing it, for the milliseconds that this takes."""
    handle = _open_guard(path.with_name(".guard"))
    try:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open_guard(path: Path) -> int:
    """On a disk too full for its name, the nearest folder that is there. Raises OSError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return regular.open_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if not disk.is_full(error):
            raise
    return os.open(next(folder for folder in path.parents if folder.is_dir()), os.O_RDONLY)
