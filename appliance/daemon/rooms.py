"""All rooms of a running daemon, built in one place and stopped in the opposite order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from appliance import settings as settings_room
from appliance.daemon import queue_file
from appliance.daemon.changes import Changes
from appliance.daemon.downloads import Downloads
from appliance.daemon.easing import Easer
from appliance.daemon.event_writer import EventWriter
from appliance.daemon.events import happenings
from appliance.daemon.fetching import Fetching
from appliance.daemon.heat_events import HeatEvents
from appliance.daemon.here import Here
from appliance.daemon.installing import Installing
from appliance.daemon.local import LocalSide
from appliance.daemon.looks import Looks
from appliance.daemon.machine.awake import KeepAwake
from appliance.daemon.machine.gpus import Gpus
from appliance.daemon.machine.watch import MachineWatch
from appliance.daemon.places import gpus_used, used_by
from appliance.daemon.points import Load
from appliance.daemon.pool import Pool, Seat
from appliance.daemon.prompt_caches import PromptCaches
from appliance.daemon.recorder import Recorder
from appliance.daemon.remote_side import RemoteSide
from appliance.daemon.sensor_events import SensorEvents
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.speeds import BandwidthLearner
from appliance.daemon.watching import PlanWatch, beside
from appliance.engines import LogBook
from appliance.journal import Journal
from appliance.monitor import Change, Listeners, Monitor, MonitorSnapshot, power_source, speed_key
from appliance.operations import remote as remote_operations
from appliance.operations.lessons.learning import Lessons
from appliance.operations.models import Library
from appliance.paths import Paths
from appliance.remotes import RemotePool

log = logging.getLogger("appliance.daemon")


class Rooms:
    """The parts that live as long as the daemon."""

    def __init__(self, paths: Paths, library: Library) -> None:
        self.paths = paths
        self.library = library
        self.changes = Changes()
        self.journal = Journal(paths.journal_file)
        self.monitor = Monitor(
            library.settings.governor, listeners=Listeners(self._heat_changed, self._sampled)
        )
        lessons = Lessons(paths.learned)
        self.logs = LogBook()
        self.events = EventWriter(self.journal)
        self.recorder = Recorder(self.journal, self._load)
        self._heat_events = HeatEvents(self.events.note)
        self._sensor_events = SensorEvents(self.events.note)
        self.here = Here(lambda: self.library)
        gpus = Gpus()
        self.prompts = PromptCaches(paths, lambda: self.library.settings)
        self.pool = Pool(
            library, monitor=self.monitor, lessons=lessons, here=self.here, book=self.logs,
            hooks=self.prompts, on_change=self._model_changed, note=self.events.note,
            watch=lambda serving, quiet: PlanWatch(
                serving, lessons, monitor=lambda: self.monitor.snapshot, quiet=quiet,
                others=lambda: beside((seat.serving for seat in self.pool), serving),
            ),
            gpus=gpus,
        )  # fmt: skip
        self.machine = MachineWatch(self.pool, gpus, paths)
        self.awake = KeepAwake(library.settings.governor.keep_awake, on_change=self.changes.notify)
        self.easer = Easer(self.pool, lambda: self.monitor.snapshot, lambda: self.library.settings.governor)
        self.learner = BandwidthLearner(lessons.note_bandwidth)
        self.local = LocalSide(library, self.pool, self.here, self.monitor, self.learner)
        self.remotes = RemoteSide(self._pool(library.settings))
        self.looks = Looks(lambda: self.library.settings, paths)
        self.installing = Installing()
        self.fetching = Fetching(lambda: self.library, self.pool, self.here)
        self.downloads = Downloads(self.fetching, paths.state / queue_file.NAME, self.changes.notify)
        self._reload: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start everything that works by itself. Raises ApplianceError when the journal can't be opened."""
        await self.journal.open()
        await self._seed_speeds()
        await self.monitor.start()
        await self.remotes.pool.start()
        self.events.start()
        self.recorder.start()
        await self.here.look()
        await self.prompts.begin()
        self.pool.start()
        self.machine.start()
        self.awake.start()
        await self.downloads.restore()

    async def _seed_speeds(self) -> None:
        """A machine that starts hot is held against what it did while cool."""
        for one in await self.journal.cool_speeds():
            power = power_source(one.power == "ac")
            key = speed_key(one.model, one.plan, power, streams=one.streams, tokens=one.tokens)
            self.monitor.seed_speeds(key, (one.tokens_per_second,))

    async def stop(self) -> None:
        """Stop in the opposite order; one part that fails to stop does not keep the others running."""
        self.changes.close()
        if self._reload is not None:
            await asyncio.gather(self._reload, return_exceptions=True)
        for name, work in (
            ("install", self.installing.cancel()),
            ("looks", self.looks.close()),
            ("downloads", self.downloads.close()),
            ("awake", self.awake.stop()),
            ("machine", self.machine.stop()),
            ("pool", self.pool.stop()),
            ("saved prompts", self.prompts.close()),
            ("models here", self.here.close()),
            ("learner", self.learner.close()),
            ("events", self.events.close()),
            ("remotes", self.remotes.pool.stop()),
            ("monitor", self.monitor.stop()),
            ("recorder", self.recorder.close()),
            ("journal", self.journal.close()),
        ):
            try:
                await work
            except Exception:
                log.exception("%s did not stop cleanly", name)

    def _pool(self, settings: settings_room.Settings) -> RemotePool:
        return RemotePool(settings.remotes, on_change=lambda _: self.changes.notify())

    def remote_rows(self) -> list[Mapping[str, Any]]:
        """The remotes as the status and `remote list` show them."""
        settings = self.library.settings
        return [remote_operations.document(one, settings) for one in self.remotes.pool.snapshot]

    async def reload_settings(self) -> None:
        """Take over a changed `config.toml` where that needs no restart; one change after the other."""
        self._reload = asyncio.create_task(self._reload_after(self._reload))
        await asyncio.shield(self._reload)

    async def _reload_after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.gather(earlier, return_exceptions=True)
        loaded = await asyncio.to_thread(settings_room.load, self.paths.config_file)
        before = self.library.settings
        self.library = self.library.using(loaded)
        self.pool.use(self.library)
        self.local.use(self.library)
        if loaded.remotes != before.remotes:
            old = self.remotes.pool
            self.remotes.pool = self._pool(loaded)
            await self.remotes.pool.start()
            await old.stop()
        if loaded.governor != before.governor:
            self.monitor.use(loaded.governor)
            self.easer.apply()
            self.awake.use(loaded.governor.keep_awake)
        if loaded.prompt_cache != before.prompt_cache:
            await self.prompts.apply()
        self.changes.notify()

    def _model_changed(self, seat: Seat, before: ServingSnapshot, now: ServingSnapshot) -> None:
        for one in happenings(before, now):
            self.events.note(one.kind, one.ref, one.text, one.detail)
        everyone = [one.serving.snapshot for one in self.pool]
        engines = [one.engine for one in everyone]
        pids = {engine.pid for engine in engines if engine is not None and engine.pid is not None}
        self.monitor.set_active(bool(pids))
        self.monitor.watch_gpus(gpus_used(everyone))
        self.monitor.engines_on(used_by(everyone, self.monitor.snapshot.gpus))
        self.monitor.set_busy(any(one.state == "busy" for one in everyone))
        self.monitor.set_engine_pids(pids)
        self.changes.notify()

    def _heat_changed(self, changes: tuple[Change, ...]) -> None:
        """Something that acts on requests has changed."""
        self._heat_events.changed(changes, self.monitor.snapshot)
        self.easer.apply()
        self.changes.notify()

    def _sampled(self, seen: MonitorSnapshot) -> None:
        """There are new values."""
        self.recorder.on_sample(seen)
        self._sensor_events.sampled(seen)

    def _load(self) -> Load:
        """What the engines do now."""
        queues = [seat.queue.snapshot for seat in self.pool]
        working = [seat.serving.snapshot.engine for seat in self.pool if seat.queue.snapshot.running]
        speeds = [e.tokens_per_second for e in working if e is not None and e.tokens_per_second is not None]
        return Load(
            sum(queue.running for queue in queues),
            sum(queue.waiting for queue in queues),
            sum(speeds) if speeds else None,
        )
