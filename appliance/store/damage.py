"""What is wrong with a file of a verified variant. This module only reads; `upkeep` acts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance import units
from appliance.catalog import File
from appliance.errors import NotVerified
from appliance.store import chunks, records
from appliance.store.chunks import ChunkDigests
from appliance.store.regular import NotRegular
from appliance.store.threads import StopFlag
from appliance.store.types import Damage, DamageAction, DamageKind, StoredFile

_READS = 3
"""How often a file that moves while it is hashed is read before it is given up."""
_SHOWN_RANGES = 4


@dataclass(frozen=True, slots=True)
class Good:
    """The bytes are those of the pin."""

    file: StoredFile
    digests: ChunkDigests


@dataclass(frozen=True, slots=True)
class Finding:
    """The bytes are not those of the pin, or can't be read."""

    kind: DamageKind
    before: StoredFile | None
    """What the file system said while it was read; None = it could not be read."""
    sha256: str
    """Of the file as it is; empty when it could not be read."""
    known: ChunkDigests | None
    """What its chunks were when it matched; None = not known, or they contradict the SHA-256."""
    bad: tuple[int, ...]
    """The chunks that differ or are missing, where `known` tells."""
    why: str
    """One line for people, without the name of the file."""

    def damage(self, pin: File, action: DamageAction, kept: Path | None) -> Damage:
        """For people and programs; `kept` is where its bytes are now."""
        known, text = self.known, f"{pin.base_name} {self.why}"
        if known is None:
            return Damage(pin.base_name, self.kind, text, None, None, None, action, kept)
        ranges = byte_ranges(self.bad, known.chunk, pin.size)
        return Damage(pin.base_name, self.kind, text, ranges, len(self.bad), len(known.xxh3), action, kept)


def examine(
    file: StoredFile, pin: File, known: ChunkDigests | None, stop: StopFlag, moved: Callable[[int], None]
) -> Good | Finding:
    """Read all of `file` and compare. `known` are the digests of its chunks when the whole matched.

    A chmod or a new hard link moves the change time without touching a byte, so the file is read again rather
    than called damaged. Raises NotVerified when it never rests.
    """
    reached = 0

    def note(done: int) -> None:
        nonlocal reached
        reached = done
        moved(done)

    try:
        for _ in range(_READS):
            before = records.stored_file(file.path, pin, referenced=file.referenced)
            # the chunks' digests cost a twentieth of the time, and tell when those that are kept are wrong
            chunk = chunks.CHUNK if known is None else known.chunk
            found = chunks.digests_of(file.path, stop, note, chunk=chunk)
            if records.rests(before):
                if found.sha256 == pin.sha256:
                    return Good(before, found)
                return _differs(before, pin, known, found)
    except (FileNotFoundError, NotADirectoryError):
        return missing(file)
    except OSError as error:
        return _unreadable(error, reached)
    raise NotVerified(
        f"{pin.base_name} keeps changing while it is read.",
        cause=f"Its size or times moved during each of {_READS} reads.",
        hint="Let the program that writes to it end, then try again.",
    )


def byte_ranges(bad: Sequence[int], chunk: int, size: int) -> tuple[tuple[int, int], ...]:
    """Chunks as byte ranges [start, end), neighbours joined."""
    joined: list[tuple[int, int]] = []
    for index in bad:
        start, end = index * chunk, min((index + 1) * chunk, size)
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return tuple(joined)


def _differs(before: StoredFile, pin: File, known: ChunkDigests | None, found: ChunkDigests) -> Finding:
    bad: tuple[int, ...] = ()
    if known is not None:
        bad = tuple(index for index in known.differing(found) if index < len(known.xxh3))
        if not bad and before.size <= pin.size:
            known = None  # every chunk is what it was, yet the whole is not: the digests tell nothing
    kind: DamageKind = "changed"
    if before.size != pin.size:
        kind = "truncated" if before.size < pin.size else "longer"
    why = f"{_what(kind, before.size, pin, found.sha256)}; {_which(known, bad, pin)}"
    return Finding(kind, before, found.sha256, known, bad, why)


def _what(kind: DamageKind, size: int, pin: File, actual: str) -> str:
    if kind == "truncated":
        return f"ends at byte {size} of {pin.size}: the last {units.size(pin.size - size)} are missing"
    if kind == "longer":
        return f"holds {size - pin.size} bytes more than the {pin.size} of its pin"
    return f"has changed (SHA-256 {actual}, expected {pin.sha256})"


def _which(known: ChunkDigests | None, bad: tuple[int, ...], pin: File) -> str:
    if known is None:
        return "which of its bytes differ is not known"
    if len(bad) == len(known.xxh3):
        return "all its chunks differ: it is another file"
    if not bad:
        return "the bytes of its pin are all there"
    ranges = byte_ranges(bad, known.chunk, pin.size)
    shown = ", ".join(f"{start}-{end - 1}" for start, end in ranges[:_SHOWN_RANGES])
    more = f" and {len(ranges) - _SHOWN_RANGES} more ranges" if len(ranges) > _SHOWN_RANGES else ""
    return f"{len(bad)} of {len(known.xxh3)} chunks of {units.size(known.chunk)} differ: bytes {shown}{more}"


def missing(file: StoredFile) -> Finding:
    """The file is not there."""
    why = f"is missing: it was {file.path}" if file.referenced else "is missing"
    return Finding("missing", None, "", None, (), why)


def _unreadable(error: OSError, reached: int) -> Finding:
    if isinstance(error, NotRegular):
        return Finding("irregular", None, "", None, (), f"is {error.kind}, not a regular file")
    reason = error.strerror or type(error).__name__
    if isinstance(error, PermissionError):
        return Finding("forbidden", None, "", None, (), f"may not be read by this user ({reason})")
    why = f"can't be read from byte {reached} on ({reason}): the disk may be failing"
    return Finding("unreadable", None, "", None, (), why)
