"""What a file on this computer is: looked at, then hashed, before anything is done with it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import ApplianceError, GgufError, ModelMissing, NotVerified
from appliance.gguf import Header, read_header
from appliance.store import chunks, firstbytes, threads
from appliance.store.chunks import ChunkDigests
from appliance.store.progress import Reporter
from appliance.store.threads import StopFlag
from appliance.store.types import OnProgress, no_progress
from appliance.text import clean_line

_READS = 3
"""How often a file that moves while it is hashed is read before it is given up."""


@dataclass(frozen=True, slots=True)
class Proven:
    """A GGUF file that was read to its end, and what it was then."""

    path: Path
    """Absolute; its folder without links, its own name as the user has it."""
    size: int
    """Bytes."""
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    header: Header
    digests: ChunkDigests

    @property
    def sha256(self) -> str:
        return self.digests.sha256

    def is_same(self, found: os.stat_result) -> bool:
        """True when this is the file that was hashed, by all but the change time, which a new link moves."""
        size, mtime_ns, _, inode, device = _identity(found)
        return (size, mtime_ns, inode, device) == (self.size, self.mtime_ns, self.inode, self.device)

    @property
    def unchanged(self) -> bool:
        """True when it still is the file that was hashed, and nobody touched it."""
        try:
            return _identity(self.path.stat()) == self.identity
        except OSError:
            return False

    @property
    def identity(self) -> tuple[int, int, int, int, int]:
        """Size, both times, inode and device."""
        return self.size, self.mtime_ns, self.ctime_ns, self.inode, self.device


async def prove(paths: Sequence[Path], report: Reporter) -> tuple[Proven, ...]:
    """Hash files beside the event loop, in phase "verifying"; a cancel ends it between two reads.

    Raises ModelMissing, NotVerified (no GGUF file, or it keeps changing), GgufError (its header),
    ApplianceError (it can't be read).
    """
    stop = StopFlag()
    sizes = await threads.run(None, lambda: [_stat(path).st_size for path in paths])
    report.whole = sum(sizes)
    found: list[Proven] = []

    def moved(done: int) -> None:
        report.done = done

    for path, size in zip(paths, sizes, strict=True):
        report.file = clean_line(path.name, 200)
        report.phase("verifying", total=report.whole)
        found.append(await threads.run(stop, prove_file, path, stop, moved))
        report.base, report.done = report.base + size, 0
    return tuple(found)


async def prove_files(
    label: str, paths: Sequence[Path], on_progress: OnProgress = no_progress
) -> tuple[Proven, ...]:
    """`prove` for callers without a report of their own; `label` is what the progress is called."""
    report = Reporter(label, None, resumable=True, publish=on_progress)
    async with report.ticking():
        return await prove(paths, report)


def prove_file(path: Path, stop: StopFlag, moved: Callable[[int], None]) -> Proven:
    """Look at one file and hash it. Its first bytes and header come first: a page is no model after 1 KiB."""
    whole = Path(os.path.realpath(path.parent)) / path.name
    name = clean_line(str(whole), 300)
    _stat(whole)
    try:
        with whole.open("rb") as data:
            first = data.read(firstbytes.WANTED)
        problem = firstbytes.problem(first, clean_line(whole.name, 200), name)
        if problem is not None:
            raise problem
        return _settled(whole, _header(whole), stop, moved)
    except OSError as error:
        raise _unreadable(name, error) from None


def _settled(whole: Path, header: Header, stop: StopFlag, moved: Callable[[int], None]) -> Proven:
    """A chmod or a new link moves the change time without touching a byte: then it is read again."""
    for _ in range(_READS):
        before = _identity(whole.stat())
        digests = chunks.digests_of(whole, stop, moved)
        if _identity(whole.stat()) == before:
            size, mtime_ns, ctime_ns, inode, device = before
            return Proven(whole, size, mtime_ns, ctime_ns, inode, device, header, digests)
        header = _header(whole)
    raise NotVerified(
        f"{clean_line(whole.name, 200)} keeps changing while it is read; it is not used.",
        cause=f"Its size or times moved during each of {_READS} reads.",
        hint="Let the program that writes to it end, then try again.",
    )


def _header(whole: Path) -> Header:
    try:
        return read_header(whole)
    except GgufError as error:
        name = clean_line(str(whole), 300)
        raise GgufError(f"{name}: {error.message}", cause=error.cause, hint=error.hint) from None


def _stat(path: Path) -> os.stat_result:
    """Of a regular file: a pipe or device is refused before it is opened, which might never return."""
    name = clean_line(str(path), 300)
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ModelMissing(
            f"{name} is not there.", hint="Look at the path, and whether its disk is connected."
        ) from None
    except OSError as error:
        raise _unreadable(name, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise NotVerified(f"{name} is not a file.", hint="Name a .gguf file.")
    return found


def _identity(found: os.stat_result) -> tuple[int, int, int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def _unreadable(name: str, error: OSError) -> ApplianceError:
    return ApplianceError(
        f"{name} can't be read.",
        cause=clean_line(error.strerror or type(error).__name__, 200),
        hint="Check its permissions: this user must be allowed to read it.",
    )
