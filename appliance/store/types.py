"""The values that the store hands out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from appliance.catalog import Role

Phase = Literal[
    "waiting", "checking disk", "downloading", "extracting", "verifying", "repairing", "done", "failed"
]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A verified file, with what the file system said about it at that time."""

    path: Path
    size: int
    sha256: str
    role: Role
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    referenced: bool = False
    """True: `path` is the user's own file outside the store, which is never moved, written or deleted."""
    pinned_as: str | None = None
    """The name that the pin gives a referenced file; None = it is that of `path`."""

    @property
    def name(self) -> str:
        """The name by which the pin knows the file."""
        return self.pinned_as or self.path.name


@dataclass(frozen=True, slots=True)
class Stored:
    """A variant whose files are all here and matched their pins."""

    ref: str
    """`id:QUANT`."""
    id: str
    quant: str
    files: tuple[StoredFile, ...]
    verified_at: float
    """Seconds since the epoch."""
    main: Path
    """The file that an engine is pointed at."""
    origin: str | None = None
    """The file or folder of this computer that is its source; None = it has another source."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pull or a check is. `done` and `total` count all files of the variant."""

    ref: str
    file: str
    """The file at work; empty before the first one."""
    phase: Phase
    done: int
    """Bytes."""
    total: int | None
    """Bytes; None = not known (pip does not say how large a wheel is)."""
    rate: float | None
    """Bytes per second over the last seconds; None = not known yet."""
    eta_s: float | None
    resumable: bool
    """False for wheels: after a kill they start over."""
    message: str | None


OnProgress = Callable[[Progress], None]
"""Called in the event loop, at every change of phase and at most ten times a second in between."""


def no_progress(_: Progress) -> None:
    """For callers that do not look."""


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """Every byte was read again and matches. Damage is raised as NotVerified instead."""

    ref: str
    stored: Stored
    n_bytes: int
    seconds: float
    unrecorded: str | None = None
    """Why that could not be written down (a full or read-only disk); None = it was."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file in the model folder that is no model: an unfinished transfer, or one that failed its check."""

    kind: Literal["partial", "quarantined"]
    path: Path
    size: int
    about: str
    """One line for people: of which model, and for quarantine why."""
    changed_at: float
    disk: int
    """Bytes that it and its notes take on the disk; holes in a partial file take none."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What this disk holds of a variant, whole or not."""

    disk: int
    """Bytes on the disk, those of partial files included; quarantined ones are not."""
    arrived: int | None
    """Bytes of an unfinished transfer; None = it is whole, or nothing is here."""
    used_at: float | None
    """When it was loaded last, in seconds since the epoch; None = never."""
    damaged: bool
    """It was whole here, and a check or a look found that it no longer is."""
    quarantined: bool = False
    """A file of it is in quarantine: one that was damaged here, or that came wrong."""


LeftoverKind = Literal["partial", "damaged", "quarantined", "unused", "lock", "empty", "prompt"]
"""`damaged`: what is left of a model that was whole; `unused`: a whole model; `lock`: of a process that is
gone; `empty`: a folder; `prompt`: text of requests, saved for an engine's next start."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Something that was removed, or that a dry run would remove."""

    kind: LeftoverKind
    path: Path
    size: int
    """Bytes that come free. A file with a name elsewhere on this disk frees nothing."""
    about: str


DamageKind = Literal["changed", "truncated", "longer", "missing", "forbidden", "unreadable", "irregular"]
"""`forbidden`: this user may not read it; `unreadable`: the disk does not give it; `irregular`: it is a
folder, a pipe or a device."""
DamageAction = Literal["partial", "quarantined", "left"]
"""What became of its bytes: `partial`: a repair goes on from them; `left`: where they were, if anywhere."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with one file of a variant that was verified before."""

    file: str
    kind: DamageKind
    text: str
    """One line for people."""
    ranges: tuple[tuple[int, int], ...] | None
    """Byte ranges [start, end) that differ, in whole chunks; None = no digests of its chunks are known."""
    chunks: int | None
    """How many chunks these are; None as above."""
    of_chunks: int | None
    """How many chunks the file has; None as above."""
    action: DamageAction
    kept: Path | None
    """Where its bytes are now; None when there are none."""

    def to_json(self) -> dict[str, Any]:
        """For `models verify --json`."""
        ranges = None if self.ranges is None else [list(pair) for pair in self.ranges]
        kept = None if self.kept is None else str(self.kept)
        return asdict(self) | {"ranges": ranges, "kept": kept}


@dataclass(frozen=True, slots=True)
class Repaired:
    """A variant that is whole again, or always was."""

    ref: str
    stored: Stored
    fetched: int
    """Bytes that came from the source; 0 when nothing was damaged."""
    damage: tuple[Damage, ...]
    """What was wrong; empty when an earlier check had found it."""
    mended: bool
    """False: it was whole."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient a transfer is. Tests use smaller numbers."""

    attempts: int = 6
    """Tries without any new byte before the transfer fails."""
    backoff_s: float = 0.5
    """First wait after an error; it doubles up to `backoff_max_s`."""
    backoff_max_s: float = 30.0
    retry_after_max_s: float = 120.0
    """A server that asks for a longer wait fails the transfer."""
    connect_s: float = 20.0
    silence_s: float = 60.0
    """A connection that brings no byte for so long is given up."""
    redirects: int = 10
    poll_s: float = 0.2
    """How often a second process looks at the progress of the first."""
    chunk: int = 8 << 20
    """Bytes of a chunk in a partial file that is begun now."""
    segment: int = 64 << 20
    """Most bytes that one connection asks for at once."""
    settle_s: float = 0.25
    """How long the first connection is watched before others open."""
    fast: int = 256 << 20
    """Bytes per second of one connection above which others bring nothing more (a mirror in the house)."""
