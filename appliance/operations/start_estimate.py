"""How long a model that is here would take to load now: a look at its files that reads none of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from appliance.catalog import ModelRef
from appliance.engines.startup import Ahead, Cached, Disk, cached, disk_of, may_preheat, spare_ram
from appliance.operations.lessons.load_times import Estimate, Known, RememberedLoads, load_estimate
from appliance.operations.models import Library
from appliance.paths import Paths
from appliance.store import Stored


@dataclass(frozen=True, slots=True)
class StartLook:
    """A model's files at one moment, and what is remembered of loading them."""

    sha256: str
    """Of the main file."""
    files: tuple[Path, ...]
    """All that an engine reads, in order."""
    n_bytes: int
    cached: Cached | None
    """What is in RAM; None: not known."""
    spare: int | None
    """Bytes of RAM that a file may fill."""
    disk: Disk | None
    disk_bytes_per_s: float | None
    known: Known

    @property
    def fraction(self) -> float | None:
        """The share that is in RAM."""
        return None if self.cached is None else self.cached.fraction

    @property
    def ahead(self) -> Ahead:
        """Whether to read the files ahead of the engine."""
        return may_preheat(self.n_bytes, self.cached, self.spare)

    @property
    def estimate(self) -> Estimate | None:
        """How long a load would take; None when nothing is known."""
        return load_estimate(self.n_bytes, self.fraction, self.disk_bytes_per_s, self.known)


def look_at(paths: Paths, stored: Stored) -> StartLook:
    """Ask the system about the files. Blocks for about a millisecond per GiB, raises nothing."""
    files = tuple(file.path for file in stored.files)
    times, disk = RememberedLoads(paths.load_times), disk_of(stored.main)
    sha256 = next((file.sha256 for file in stored.files if file.path == stored.main), stored.files[0].sha256)
    return StartLook(
        sha256=sha256,
        files=files,
        n_bytes=stored.size,
        cached=cached(files),
        spare=spare_ram(),
        disk=disk,
        disk_bytes_per_s=times.disk(disk),
        known=times.known(sha256),
    )


async def estimate_for(library: Library, ref: ModelRef | str) -> Estimate | None:
    """How long this model would take to load now; None when it is not here, or nothing is known.

    Costs some file-system calls in a thread: callers that ask for each request should keep the answer for
    some seconds. Raises nothing.
    """
    return await asyncio.to_thread(_estimate, library, ref if isinstance(ref, str) else ref.ref)


def _estimate(library: Library, ref: str) -> Estimate | None:
    stored = library.store.find(ref)
    return None if stored is None or not stored.files else look_at(library.paths, stored).estimate
