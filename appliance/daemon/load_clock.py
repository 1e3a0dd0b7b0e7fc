"""What took how long in one load, and the head start that its files get."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from appliance.engines.startup import Ahead, ModeChoice, Preheat, Report, mode_for, where_of
from appliance.operations.lessons.load_times import WARM, Estimate, LoadTime, RememberedLoads
from appliance.operations.start_estimate import StartLook, look_at
from appliance.paths import Paths
from appliance.planning import Plan
from appliance.store import Stored

Phase = Literal["prove", "look", "plan", "engine"]
_JOIN_S = 2.0


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """One load that worked. Seconds; None: unknown."""

    total_s: float
    """From the order to an engine that answers."""
    prove_s: float
    """The files are the verified ones."""
    look_s: float
    """Hardware and engines."""
    plan_s: float
    """Headers read, plan made and measured."""
    engine_s: float
    """From the engine's start to its first token; all attempts together."""
    attempts: int
    """1, or more when memory ran out on the way."""
    n_bytes: int
    """Of the files."""
    cached: float | None
    """The share of them that was in RAM at the beginning."""
    ahead: Ahead
    """Whether they were read ahead of the engine, and why."""
    read: Report
    """What that reading did."""
    mode: ModeChoice
    """How the engine read them, and why."""
    disk_bytes_per_s: float | None
    """The disk's read speed: as seen in this load, else as remembered."""

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes that came from the disk per second of the whole load; None: it was in RAM already."""
        if self.total_s <= 0 or (self.cached is not None and self.cached >= WARM):
            return None
        return self.n_bytes * (1 - (self.cached or 0.0)) / self.total_s


class LoadClock:
    """Adds up the phases of one load."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._spent: dict[Phase, float] = {}
        self.attempts = 0

    @contextlib.contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """What happens inside counts for this phase, also when it raises."""
        began = self._clock()
        try:
            yield
        finally:
            self._spent[name] = self.spent(name) + self._clock() - began

    def spent(self, name: Phase) -> float:
        """Seconds so far."""
        return self._spent.get(name, 0.0)

    @property
    def total(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._began


class HeadStart:
    """The files of a model, read ahead of its engine while everything else is prepared."""

    def __init__(self, look: StartLook) -> None:
        self.look = look
        self._preheat = Preheat(look.files) if look.ahead.preheat else None
        if self._preheat is not None:
            self._preheat.start()

    @classmethod
    async def begin(cls, paths: Paths, stored: Stored) -> HeadStart:
        """Look at the files and begin to read what is not in RAM, where there is room for it."""
        return cls(await asyncio.to_thread(look_at, paths, stored))

    @property
    def estimate(self) -> Estimate | None:
        """How long the load will take."""
        return self.look.estimate

    def mode(self, plan: Plan) -> ModeChoice:
        """How an engine reads the files for this plan."""
        return mode_for(where_of(plan), self.look.n_bytes, self.look.cached, self.look.spare)

    def stop(self) -> None:
        """Read no further: the engine has what it needs, or will not come."""
        if self._preheat is not None:
            self._preheat.stop()

    async def note(self, paths: Paths, clock: LoadClock, build: str, plan: Plan) -> LoadTimes:
        """The load worked: what it took, also for the next estimate unless memory ran out on the way."""
        total = clock.total
        self.stop()
        if self._preheat is not None:
            await asyncio.to_thread(self._preheat.join, _JOIN_S)
        times = self._times(clock, total, self.mode(plan))
        if times.attempts == 1:
            await asyncio.to_thread(self._remember, paths, times, build, plan)
        return times

    def _times(self, clock: LoadClock, total: float, mode: ModeChoice) -> LoadTimes:
        read = Report() if self._preheat is None else self._preheat.report
        return LoadTimes(
            total_s=total,
            prove_s=clock.spent("prove"),
            look_s=clock.spent("look"),
            plan_s=clock.spent("plan"),
            engine_s=clock.spent("engine"),
            attempts=clock.attempts,
            n_bytes=self.look.n_bytes,
            cached=self.look.fraction,
            ahead=self.look.ahead,
            read=read,
            mode=mode,
            disk_bytes_per_s=read.disk_bytes_per_s or self.look.disk_bytes_per_s,
        )

    def _remember(self, paths: Paths, times: LoadTimes, build: str, plan: Plan) -> None:
        seen = LoadTime(
            seconds=times.total_s,
            n_bytes=times.n_bytes,
            cached=times.cached,
            engine_s=times.engine_s,
            disk_bytes_per_s=times.read.disk_bytes_per_s,
            preheated=times.ahead.preheat,
        )
        RememberedLoads(paths.load_times).note(self.look.sha256, build, where_of(plan), seen, self.look.disk)
