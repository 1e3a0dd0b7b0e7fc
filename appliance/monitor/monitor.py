"""The monitor: owns the sensor child, steps the governors, publishes snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.hardware import cgroup, host
from appliance.hardware.sensors import Sample, identity
from appliance.hardware.sysfs import Roots
from appliance.monitor.governor.baseline import SpeedKey, SpeedTracker
from appliance.monitor.governor.states import Governor, Reading, Rule, ThermalState, step, worst
from appliance.monitor.process import ChildEnded, SensorChild
from appliance.monitor.snapshot import MonitorSnapshot, gpu_view, message
from appliance.monitor.wire import parse
from appliance.settings import Governor as GovernorSettings

log = logging.getLogger("appliance.monitor")

_IDLE_SLOWER = 5
"""Cool and without requests, a machine is looked at this many times less often."""


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


class Monitor:
    """Reads the sensors while an engine is loaded. `start` and `stop` once each, from the event loop.

    It begins inactive: CPU and RAM are read, and no sensor child runs before `set_active(True)`.
    """

    def __init__(
        self,
        governor: GovernorSettings,
        *,
        interval_s: float = 1.0,
        timing: Timing = Timing(),
        clock: Callable[[], float] = time.monotonic,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._rule = Rule(governor.slow, governor.throttle_margin, governor.hold, governor.dwell)
        self._base_interval = self._interval = interval_s
        self._timing = timing
        self._clock = clock
        self._env = env
        self._busy = True
        self._active = False
        self._gpus_watched = True
        self._pids: frozenset[int] = frozenset()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._child: SensorChild | None = None
        self._sample: Sample | None = None
        self._sample_at: float | None = None
        self._changed_at = self._paced_at = clock()
        self._host: Sample | None = None
        self._cpu = host.CpuLoad()
        self._governors: dict[str, Governor] = {}
        self._speeds = SpeedTracker()
        self._restarts = 0

    async def start(self) -> None:
        """Begin to watch."""
        if self._task is None:
            self._changed_at = self._clock()
            self._task = asyncio.create_task(self._run(), name="monitor")

    async def stop(self) -> None:
        """End the sensor child and stop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def set_active(self, active: bool) -> None:
        """False while no engine is loaded: the sensor child ends, so that the GPU may sleep."""
        if active == self._active:
            return
        self._active = active
        self._changed_at = self._clock()
        if not active:
            self._forget_readings()
            if self._child is not None:
                self._child.hang_up()
        self._wake.set()

    def set_busy(self, busy: bool) -> None:
        """False while no request runs: the sensors are read less often, unless a GPU shows heat."""
        self._busy = busy
        self._pace()

    def watch_gpus(self, watched: bool) -> None:
        """False while engines use only the CPU: the child lets go of the GPUs, so that they may sleep."""
        self._gpus_watched = watched
        self._steer(self._mode)

    def set_engine_pids(self, pids: set[int]) -> None:
        """The processes whose GPU memory counts as the engine's."""
        if pids != self._pids:
            self._pids = frozenset(pids)
            self._steer("processes")

    def observe_speed(self, key: SpeedKey, tokens_per_second: float) -> None:
        """Take the decode speed of a finished request."""
        self._speeds.observe(key, tokens_per_second, self._thermal(), self._clock())

    @property
    def snapshot(self) -> MonitorSnapshot:
        """What is known now; ages grow until the next sample."""
        now, age, stale, thermal = self._clock(), self._age(), self._stale(), self._thermal()
        sample = self._sample
        fresh = age is not None and self._active and not stale
        current = sample if fresh else self._host or sample
        known = sample.gpus if sample is not None else ()
        return MonitorSnapshot(
            gpus=tuple(gpu_view(gpu, self._state_of(gpu.id), age, self._pids) for gpu in known),
            thermal=thermal,
            factor=self._speeds.factor(now) if thermal in ("throttled", "critical") else 1.0,
            ram_available=current.ram_available if current else None,
            ram_total=current.ram_total if current else None,
            cpu_percent=current.cpu_percent if current else None,
            battery=current.battery if current else None,
            message=message(sample, stale=stale, age_s=age) if self._active else None,
            stale=stale,
            age_s=age,
            active=self._active,
            restarts=self._restarts,
            sensor_pid=self._child.pid if self._child is not None else None,
        )

    def _wanted_interval(self) -> float:
        hot = any(governor.state not in ("cool", "unknown") for governor in self._governors.values())
        return self._base_interval * (1 if self._busy or hot else _IDLE_SLOWER)

    def _pace(self) -> None:
        """Tell the child when the pace has changed."""
        interval = self._wanted_interval()
        if interval != self._interval:
            self._interval, self._paced_at = interval, self._clock()
            self._steer(f"interval {interval}")

    @property
    def _mode(self) -> str:
        return "mode full" if self._gpus_watched else "mode host"

    def _age(self) -> float | None:
        return None if self._sample_at is None else max(0.0, self._clock() - self._sample_at)

    def _stale(self) -> bool:
        """Silent for too long, counted from the last sample or from when sampling was asked for."""
        if not self._active or self._task is None:
            return False
        # a quicker pace is not missed by values that were asked for at the slower one
        since = self._changed_at if self._sample_at is None else max(self._sample_at, self._paced_at)
        limit = self._timing.first if self._sample_at is None else self._timing.stale
        return self._clock() - since > max(limit, 2.5 * self._interval)

    def _wanted(self) -> bool:
        """The switch as it is now; it may have moved during an await."""
        return self._active

    def _forget_readings(self) -> None:
        """Keep which GPUs there are; what they told is not true any more."""
        if self._sample is not None:
            self._sample = Sample(gpus=tuple(identity(gpu) for gpu in self._sample.gpus))
        self._sample_at = None

    def _state_of(self, gpu_id: str) -> ThermalState:
        governor = self._governors.get(gpu_id)
        return governor.state if governor is not None else "unknown"

    def _thermal(self) -> ThermalState:
        """Devices that never told anything about heat, such as a second, integrated GPU, have no say."""
        return worst(governor.state for governor in self._governors.values() if governor.last is not None)

    def _steer(self, line: str) -> None:
        if self._child is not None:
            self._child.command(line)

    async def _run(self) -> None:
        """The owner of the child: one life after the other, with a growing pause after short ones."""
        pause = self._timing.backoff
        while True:
            if not self._active:
                await self._rest()
                continue
            try:
                samples = await self._live()
            except Exception:
                log.exception("the sensor child could not be watched")
                samples = 0
            if not self._wanted():
                continue
            self._restarts += 1
            if samples >= self._timing.lived_well:
                pause = self._timing.backoff
            log.warning("the sensor child ended after %d samples; it starts again in %.1f s", samples, pause)
            await self._without_sensors(pause)
            pause = min(pause * 2, self._timing.longest_backoff)

    async def _live(self) -> int:
        """One life of the child, until it ends, hangs or is not wanted; how many samples it gave."""
        child = await SensorChild.spawn(self._env)
        self._child = child
        samples, heard = 0, self._clock()
        try:
            for line in (f"interval {self._interval}", self._mode):
                child.command(line)
            while self._active:
                raw = await child.line(min(self._interval, self._timing.stale))
                sample = parse(raw) if raw is not None else None
                if sample is not None:
                    samples, heard = samples + 1, self._clock()
                    self._take(sample)
                    continue
                limit = self._timing.first if samples == 0 else self._timing.deadline
                if self._clock() - heard > max(limit, 4 * self._interval):
                    log.warning("the sensors hang")
                    break
                await self._look_at_host()
        except ChildEnded:
            pass
        finally:
            self._child = None
            await child.end()
        return samples

    def _take(self, sample: Sample) -> None:
        """A new sample: every governor takes a step, those of devices that are gone without a reading."""
        now = self._clock()
        self._sample, self._sample_at = sample, now
        readings = {gpu.id: Reading(gpu.headroom, gpu.margin, gpu.reasons) for gpu in sample.gpus}
        self._step(readings, now)

    def _step(self, readings: Mapping[str, Reading], now: float) -> None:
        ratio = self._speeds.ratio(now)
        for gpu_id in {*self._governors, *readings}:
            before = self._governors.get(gpu_id, Governor())
            after = step(before, readings.get(gpu_id), now, ratio, self._rule)
            self._governors[gpu_id] = after
            if after.state != before.state:
                log.info("%s is %s, was %s", gpu_id, after.state, before.state)
        self._pace()

    async def _without_sensors(self, seconds: float) -> None:
        """Wait, and go on with CPU and RAM meanwhile; ends early when the monitor is switched."""
        end = self._clock() + seconds
        while self._active and (left := end - self._clock()) > 0:
            await self._look_at_host()
            await self._sleep(min(left, self._base_interval))

    async def _rest(self) -> None:
        """Not active: nothing of ours heats the machine, so old heat counts no longer than `dwell`."""
        await self._look_at_host()
        if self._clock() - self._changed_at >= self._rule.dwell:
            self._governors.clear()
            self._pace()
        known = self._host is not None and self._host.cpu_percent is not None  # it takes two looks
        await self._sleep(self._base_interval * (_IDLE_SLOWER if known else 1))

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _look_at_host(self) -> None:
        """CPU and RAM without the child, and a step without readings once the last ones are too old."""
        self._host = await asyncio.to_thread(_host_sample, self._cpu)
        if self._stale() or not self._active:
            self._step({}, self._clock())


def _host_sample(cpu: host.CpuLoad) -> Sample:
    ram = host.ram(cgroup.read(Roots()))
    return Sample(
        cpu_percent=cpu.percent(),
        ram_total=ram.total,
        ram_available=ram.available,
        battery=host.battery(),
    )
