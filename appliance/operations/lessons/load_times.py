"""How long models took to load here, and what that says of the next load.

`load_times.json` keeps, by model hash, engine build and place of the weights, the last load from RAM (warm)
and the last one from the disk (cold), and the read speed of each disk as loads saw it. No name of a file or
of a request is in it. Everything that touches the file blocks a little: call it in a thread.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.engines.startup import Disk, smoothed
from appliance.operations.lessons import load_file
from appliance.operations.lessons.load_file import DiskEntry, LoadEntry, ModelEntry
from appliance.units import about

log = logging.getLogger("appliance.learning")

WARM = 0.95
"""From this share in RAM on a load counts as warm."""
STARTED_S = 3.0
"""What a load takes beside reading, when no load of the model was seen: look, plan, start. Rule of thumb."""

_TELLING = 0.5
"""Up to this share in RAM a cold load says what an even colder one would take."""

How = Literal["seen", "computed", "rough"]
"""`seen`: as loads of this model took here; `computed`: from one of them and the disk; `rough`: from the
disk alone."""


@dataclass(frozen=True, slots=True)
class LoadTime:
    """One load that worked."""

    seconds: float
    """From the order to an engine that answers."""
    n_bytes: int
    """Of all files."""
    cached: float | None
    """The share of them that was in RAM at the beginning; None: not known."""
    engine_s: float | None = None
    """Of `seconds`, from the engine's start to its first token."""
    disk_bytes_per_s: float | None = None
    """As seen in this load; None: too little came from the disk to tell."""
    preheated: bool = False
    at: float = 0.0
    """Unix time."""

    @property
    def missing(self) -> int:
        """Bytes that were not in RAM."""
        return int(self.n_bytes * (1 - (self.cached or 0.0)))


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of one model; None: not seen."""

    warm: LoadTime | None = None
    cold: LoadTime | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a load will take."""

    seconds: float
    how: How

    @property
    def text(self) -> str:
        """`usually 3 s`, `about 40 s from this disk`."""
        time = about(max(1.0, self.seconds))
        return f"usually {time}" if self.how == "seen" else f"about {time} from this disk"


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """A disk as loads saw it."""

    name: str
    bytes_per_s: float
    at: float


def load_estimate(
    size: int, cached_fraction: float | None, disk_bytes_per_s: float | None, known: Known
) -> Estimate | None:
    """Seconds to load `size` bytes of which this share is in RAM. Pure; None when nothing is known.

    An unknown share counts as nothing in RAM. Errs on the long side: reading and the engine's own work
    overlap, and are added here.
    """
    cached = min(1.0, max(0.0, cached_fraction or 0.0))
    warm, cold = known.warm, known.cold
    if warm is not None and cold is not None and cold.cached is not None:
        tells = cached >= cold.cached or cold.cached <= _TELLING
        if tells or disk_bytes_per_s is None:
            return Estimate(_between(warm, cold, cached), "seen")
    missing = size * (1 - cached)
    if warm is not None:
        if cached >= WARM:
            return Estimate(warm.seconds, "seen")
        if disk_bytes_per_s is not None:
            return Estimate(warm.seconds + missing / disk_bytes_per_s, "computed")
    if cold is not None:
        found = _from_cold(cold, missing, disk_bytes_per_s)
        return found if warm is None else Estimate(max(warm.seconds, found.seconds), found.how)
    if disk_bytes_per_s is None:
        return None
    return Estimate(STARTED_S + missing / disk_bytes_per_s, "rough")


def _between(warm: LoadTime, cold: LoadTime, cached: float) -> float:
    """On the line through both; a cold load that was the faster one says that reading does not matter."""
    slower = max(0.0, cold.seconds - warm.seconds)
    share = (1 - cached) / (1 - min(WARM, cold.cached or 0.0))
    return warm.seconds + slower * share


def _from_cold(cold: LoadTime, missing: float, disk_bytes_per_s: float | None) -> Estimate:
    """The same again; less of it where the disk tells what reading less saves, but never below half."""
    if disk_bytes_per_s is None or abs(missing - cold.missing) < (1 - WARM) * cold.n_bytes:
        return Estimate(cold.seconds, "seen")
    more = (missing - cold.missing) / disk_bytes_per_s
    return Estimate(max(cold.seconds / 2, cold.seconds + more), "computed")


class RememberedLoads:
    """What is remembered. Any number of processes may have one over the same file."""

    def __init__(self, file: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock

    def known(self, sha256: str, build: str | None = None, where: str | None = None) -> Known:
        """Of this model with this build at this place; else of the combination that was loaded last."""
        loads = load_file.read(self._file).loads
        entry = loads.get(_key(sha256, build, where)) if build is not None and where is not None else None
        if entry is None:
            mine = [one for one in loads.values() if one.model == _short(sha256)]
            entry = max(mine, key=lambda one: one.at, default=None)
        return Known() if entry is None else Known(_time(entry.warm), _time(entry.cold))

    def disk(self, disk: Disk | None) -> float | None:
        """Bytes per second that this disk was read with; None: never seen."""
        found = None if disk is None else load_file.read(self._file).disks.get(disk.key)
        return None if found is None else found.bytes_per_s

    def disks(self) -> Mapping[str, DiskSpeed]:
        """All disks that were seen, by key."""
        found = load_file.read(self._file).disks
        return {key: DiskSpeed(one.name, one.bytes_per_s, one.at) for key, one in found.items()}

    def note(self, sha256: str, build: str, where: str, seen: LoadTime, disk: Disk | None = None) -> None:
        """Keep a load that worked, and what it showed of the disk that its files lie on."""
        now = self._clock()
        entry = LoadEntry(
            seconds=max(seen.seconds, 0.001), n_bytes=seen.n_bytes, cached=seen.cached,
            engine_s=seen.engine_s, disk_bytes_per_s=seen.disk_bytes_per_s, preheated=seen.preheated, at=now,
        )  # fmt: skip

        def change(known: load_file.Document) -> None:
            model = known.loads.setdefault(_key(sha256, build, where), ModelEntry(model=_short(sha256)))
            model.at = now
            if seen.cached is not None and seen.cached >= WARM:
                model.warm = entry
            else:
                model.cold = entry
            if disk is not None and seen.disk_bytes_per_s is not None:
                old = known.disks.get(disk.key)
                speed = smoothed(None if old is None else old.bytes_per_s, seen.disk_bytes_per_s)
                if speed is not None:
                    known.disks[disk.key] = DiskEntry(name=disk.name[:200], bytes_per_s=speed, at=now)

        try:
            load_file.change(self._file, change)
        except OSError as error:
            log.warning("how long a load took can't be kept: %s", error.strerror or type(error).__name__)


def _time(entry: LoadEntry | None) -> LoadTime | None:
    if entry is None:
        return None
    return LoadTime(
        entry.seconds, entry.n_bytes, entry.cached, entry.engine_s, entry.disk_bytes_per_s,
        entry.preheated, entry.at,
    )  # fmt: skip


def _short(sha256: str) -> str:
    return sha256[:32]


def _key(sha256: str, build: str, where: str) -> str:
    return hashlib.sha256("\n".join((sha256, build, where)).encode(errors="replace")).hexdigest()[:32]
