"""The monitor: hands the sensors' samples to the governor, and publishes snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from appliance.hardware import cgroup, host
from appliance.hardware.sensors import Sample, identity
from appliance.hardware.sysfs import Roots
from appliance.monitor.governor import (
    CPU,
    Change,
    DeviceHeat,
    Heat,
    HeatView,
    PowerSource,
    Rule,
    SpeedKey,
    power_source,
)
from appliance.monitor.governor import power as powers
from appliance.monitor.governor.baseline import Baseline
from appliance.monitor.governor.readings import of_sample
from appliance.monitor.pace import IDLE_SLOWER, Pace, pace
from appliance.monitor.snapshot import MonitorSnapshot, cpu_view, gpu_view, message
from appliance.monitor.watch import SensorWatch, Timing
from appliance.settings import Governor as GovernorSettings

log = logging.getLogger("appliance.monitor")


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told. Each is called in the event loop and must return at once."""

    changed: Callable[[tuple[Change, ...]], None] = lambda _: None
    """Something that acts has changed: a device's state (then with why), the power source, easing."""
    sampled: Callable[[MonitorSnapshot], None] = lambda _: None
    """There are new values: of the sensors, or of the host while none run."""


class Monitor:
    """Reads the sensors while an engine is loaded. `start` and `stop` once each, from the event loop.

    It begins inactive: CPU and RAM are read, and no sensor child runs before `set_active(True)`.
    """

    def __init__(
        self,
        governor: GovernorSettings,
        *,
        interval_s: float = 1.0,
        timing: Timing = Timing(),  # noqa: B008
        clock: Callable[[], float] = time.monotonic,
        env: Mapping[str, str] | None = None,
        listeners: Listeners = Listeners(),
    ) -> None:
        self._rule = _rule(governor)
        self._base_s, self._clock, self.listeners = interval_s, clock, listeners
        self._heat = Heat(self._rule)
        self._power = powers.Power()
        self._busy, self._gpus_used = True, True
        self._places: frozenset[str] | None = None
        self._pids: frozenset[int] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self._sample: Sample | None = None
        self._host: Sample | None = None
        self._cpu = host.CpuLoad()
        self._rest_since = self._gpus_rest_since = clock()
        self._told: tuple[HeatView, PowerSource] | None = None
        self._watch = SensorWatch(
            Pace(interval_s, full=True), timing, clock, take=self._take, meanwhile=self._look_at_host, env=env
        )

    async def start(self) -> None:
        """Begin to watch."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch.run(self._rest), name="monitor")

    async def stop(self) -> None:
        """End the sensor child and stop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def use(self, governor: GovernorSettings) -> None:
        """Take over changed settings."""
        self._rule = _rule(governor)
        self._heat.use(self._rule)

    def set_active(self, active: bool) -> None:
        """False while no engine is loaded: the sensor child ends, so that the GPU may sleep."""
        if active == self._watch.wanted:
            return
        if not active:
            self._rest_since = self._clock()
            self._forget_readings()
        self._watch.switch(active)

    def set_busy(self, busy: bool) -> None:
        """False while no request runs: the sensors are read less often, unless heat acts on requests."""
        self._busy = busy
        self._pace()

    def watch_gpus(self, used: bool) -> None:
        """False while engines use only the CPU: the child lets go of the GPUs, so that they may sleep."""
        if used == self._gpus_used:
            return
        self._gpus_used, self._gpus_rest_since = used, self._clock()
        self._pace()

    def engines_on(self, places: frozenset[str] | None) -> None:
        """The devices that engines run on; None: not known. In a machine with a battery all share their
        cooling; elsewhere one that no engine uses is shown, and counts for nobody.
        """
        if places != self._places:
            self._places = places
            self._count()

    def _count(self) -> None:
        seen = self._host or self._sample
        laptop = seen is None or (seen.battery is not None and seen.battery.percent is not None)
        alone = self._places if not laptop and self._places else None
        self._heat.count(None if alone is None else alone | {CPU})

    def set_engine_pids(self, pids: set[int]) -> None:
        """The processes whose GPU memory counts as the engine's."""
        if pids != self._pids:
            self._pids = frozenset(pids)
            self._watch.command("processes")

    def observe_speed(
        self, key: SpeedKey, tokens_per_second: float, places: Collection[str] = (CPU,)
    ) -> None:
        """Take the decode speed of a finished request that ran on `places` (GPU ids, `cpu`)."""
        self._heat.observe(key, tokens_per_second, places, self._clock())

    def seed_speeds(self, key: SpeedKey, speeds: Iterable[float]) -> None:
        """Speeds of earlier days, measured while cool: a machine that starts hot is held against them."""
        self._heat.seed(key, speeds)

    def usual_speed(self, key: SpeedKey) -> Baseline | None:
        """What this machine decodes when it is well; None while unknown."""
        return self._heat.baseline(key)

    @property
    def snapshot(self) -> MonitorSnapshot:
        """What is known now; ages grow until the next sample."""
        watch, sample, heat = self._watch, self._sample, self._heat.view(self._clock())
        age, stale = watch.age_s, watch.stale
        fresh = age is not None and watch.wanted and not stale
        current = (sample if fresh else self._host or sample) or Sample()
        known = sample or Sample()
        gpus = (
            gpu_view(
                gpu, heat.devices.get(gpu.id, DeviceHeat()), age, self._pids, watched=self._watches_gpus()
            )
            for gpu in known.gpus
        )
        cpu = None
        if known.cpu is not None:
            cpu = cpu_view(known.cpu, heat.devices.get(CPU, DeviceHeat()), age)
        return MonitorSnapshot(
            gpus=tuple(gpus),
            cpu=cpu,
            thermal=heat.thermal,
            factor=heat.factor,
            eases=heat.eases,
            devices=heat.devices,
            power=self._power.source,
            ram_available=current.ram_available,
            ram_total=current.ram_total,
            swap_total=current.swap_total,
            swap_used=current.swap_used,
            cpu_percent=current.cpu_percent,
            battery=current.battery,
            message=message(sample, stale=stale, age_s=age) if watch.wanted else None,
            skipped=known.skipped,
            stale=stale,
            age_s=age,
            active=watch.wanted,
            restarts=watch.restarts,
            sensor_pid=watch.pid,
        )

    def _watches_gpus(self) -> bool:
        return self._watch.wanted and self._gpus_used

    def _pace(self) -> None:
        devices = self._heat.view(self._clock()).devices.values()
        self._watch.keep(pace(self._base_s, busy=self._busy, gpus=self._gpus_used, devices=devices))

    def _forget_readings(self) -> None:
        """Keep which GPUs there are; what they told is not true any more."""
        if self._sample is not None:
            self._sample = Sample(gpus=tuple(identity(gpu) for gpu in self._sample.gpus))

    def _take(self, sample: Sample) -> None:
        """A new sample: every device takes a step, those that are gone without a reading."""
        if not self._gpus_used and self._sample is not None:
            sample = replace(sample, gpus=tuple(identity(gpu) for gpu in self._sample.gpus))
            if self._clock() - self._gpus_rest_since >= self._rule.dwell:
                self._forgotten(self._heat.forget(gpu.id for gpu in sample.gpus))
        self._sample = sample
        self._see_power(sample)
        self._count()
        self._step(sample)

    def _step(self, sample: Sample) -> None:
        changes = self._heat.take(of_sample(sample), self._clock())
        for change in changes:
            log.info("%s is %s, was %s: %s", change.device, change.after, change.before, change.why)
        self._pace()
        self._tell(changes)

    def _tell(self, changes: tuple[Change, ...] = ()) -> None:
        """Those who listen, when there is something new that acts."""
        view = self._heat.view(self._clock())
        acts = (replace(view, devices={}), self._power.source)
        if changes or acts != self._told:
            self._told = acts
            self.listeners.changed(changes)
        self.listeners.sampled(self.snapshot)

    def _forgotten(self, changes: tuple[Change, ...]) -> None:
        if changes:
            self._tell(changes)

    def _see_power(self, seen: Sample) -> None:
        """A machine without a battery is on mains; one that was not looked at yet is unknown."""
        source = power_source(seen.battery.plugged) if seen.battery is not None else "ac"
        self._power = powers.step(self._power, source, self._clock(), self._rule.hold)

    async def _rest(self) -> None:
        """Not active: nothing of ours heats the machine, so old heat counts no longer than `dwell`."""
        await self._look_at_host()
        if self._clock() - self._rest_since >= self._rule.dwell:
            self._forgotten(self._heat.forget())
            self._pace()
        known = self._host is not None and self._host.cpu_percent is not None  # it takes two looks
        await self._watch.sleep(self._base_s * (IDLE_SLOWER if known else 1))

    async def _look_at_host(self) -> None:
        """CPU and RAM without the child, and a step without readings once the last ones are too old."""
        self._host = await asyncio.to_thread(_host_sample, self._cpu)
        self._see_power(self._host)
        if self._watch.stale or not self._watch.wanted:
            self._step(Sample())


def _rule(settings: GovernorSettings) -> Rule:
    return Rule(settings.slow, settings.throttle_margin, settings.hold, settings.dwell)


def _host_sample(cpu: host.CpuLoad) -> Sample:
    limits = cgroup.read(Roots())
    ram, swap = host.ram(limits), host.swap(limits)
    return Sample(
        cpu_percent=cpu.percent(),
        ram_total=ram.total,
        ram_available=ram.available,
        swap_total=swap.total,
        swap_used=swap.used,
        battery=host.battery(),
    )
