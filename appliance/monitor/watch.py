"""The owner of the sensor child: one life after the other, with a growing pause after short ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from appliance.hardware.sensors import Sample
from appliance.monitor.culprits import Culprits
from appliance.monitor.pace import Pace
from appliance.monitor.process import ChildEnded, SensorChild
from appliance.monitor.wire import parse

log = logging.getLogger("appliance.monitor")


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the sensors may be silent, in seconds."""

    first: float = 20.0
    """Until the first sample: a sleeping GPU and a driver without persistence take seconds."""
    stale: float = 2.5
    """After that values count as stale; at least 2.5 intervals."""
    deadline: float = 6.0
    """After that the child is killed and started again; at least 4 intervals."""
    backoff: float = 0.5
    """Before the first restart; doubles up to `longest_backoff` until a child has lived well."""
    longest_backoff: float = 30.0
    lived_well: int = 10
    """Samples after which an end is an accident and no series."""


class SensorWatch:
    """`run` is a task of the monitor's. It keeps a child while `wanted` is set, and hands on its samples."""

    def __init__(
        self,
        pace: Pace,
        timing: Timing,
        clock: Callable[[], float],
        *,
        take: Callable[[Sample], None],
        meanwhile: Callable[[], Awaitable[None]],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`take` gets each sample; `meanwhile` is called while none comes."""
        self._pace, self._timing, self._clock, self._env = pace, timing, clock, env
        self._take, self._meanwhile = take, meanwhile
        self._child: SensorChild | None = None
        self._culprits = Culprits()
        self._wanted = False
        self._heard_at: float | None = None
        self._since = clock()
        """When it was switched, or its pace has changed: values that were asked for before are not missed."""
        self.wake = asyncio.Event()
        self.restarts = 0

    @property
    def wanted(self) -> bool:
        """The switch as it is now; it may move during an await."""
        return self._wanted

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    @property
    def age_s(self) -> float | None:
        """Seconds since the last sample; None before the first."""
        return None if self._heard_at is None else max(0.0, self._clock() - self._heard_at)

    @property
    def stale(self) -> bool:
        """Silent for too long, counted from the last sample or from when sampling was asked for."""
        if not self._wanted:
            return False
        since = self._since if self._heard_at is None else max(self._heard_at, self._since)
        limit = self._timing.first if self._heard_at is None else self._timing.stale
        return self._clock() - since > max(limit, 2.5 * self._pace.interval_s)

    def switch(self, wanted: bool) -> None:
        """Keep a child, or end it."""
        if wanted == self._wanted:
            return
        self._wanted, self._since = wanted, self._clock()
        if not wanted:
            self._heard_at = None
            if self._child is not None:
                self._child.hang_up()
        self.wake.set()

    def keep(self, pace: Pace) -> None:
        """Another pace, from now on."""
        if pace == self._pace:
            return
        self._pace, self._since = pace, self._clock()
        for line in pace.commands:
            self.command(line)

    def command(self, line: str) -> None:
        """Steer the child, if one runs."""
        if self._child is not None:
            self._child.command(line)

    async def run(self, rest: Callable[[], Awaitable[None]]) -> None:
        """For ever. `rest` is awaited again and again while no child is wanted."""
        pause = self._timing.backoff
        while True:
            if not self._wanted:
                await rest()
                continue
            try:
                samples = await self._live()
            except Exception:
                log.exception("the sensor child could not be watched")
                samples = 0
            if not self.wanted:
                continue
            self.restarts += 1
            if samples >= self._timing.lived_well:
                pause = self._timing.backoff
            log.warning("the sensor child ended after %d samples; it starts again in %.1f s", samples, pause)
            await self._without(pause)
            pause = min(pause * 2, self._timing.longest_backoff)

    async def sleep(self, seconds: float) -> None:
        """Until the time is over, or the monitor is switched."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        self.wake.clear()

    async def _live(self) -> int:
        """One life of the child, until it ends, hangs or is not wanted; how many samples it gave."""
        child = await SensorChild.spawn(self._env, self._culprits.skips(self._clock()))
        self._child = child
        samples, heard = 0, self._clock()
        try:
            for line in self._pace.commands:
                child.command(line)
            while self._wanted:
                raw = await child.line(min(self._pace.interval_s, self._timing.stale))
                if not self.wanted:
                    break  # switched off meanwhile: what was on its way is not taken any more
                sample = parse(raw) if raw is not None else None
                if sample is not None:
                    samples, heard = samples + 1, self._clock()
                    self._heard_at = heard
                    self._take(sample)
                    continue
                limit = self._timing.first if samples == 0 else self._timing.deadline
                if self._clock() - heard > max(limit, 4 * self._pace.interval_s):
                    log.warning("the sensors hang")
                    break
                await self._meanwhile()
        except ChildEnded:
            pass
        finally:
            self._child = None
            await child.end()
        if self.wanted:
            blame = child.blame()
            self._culprits = self._culprits.after(blame, self._clock())
            if blame is not None:
                log.warning("the sensor child ended in %s", blame)
        return samples

    async def _without(self, seconds: float) -> None:
        """Wait, and go on without sensors meanwhile; ends early when the monitor is switched."""
        end = self._clock() + seconds
        while self._wanted and (left := end - self._clock()) > 0:
            await self._meanwhile()
            await self.sleep(min(left, self._pace.interval_s))
