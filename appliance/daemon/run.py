"""The composition root: builds the rooms, binds the gateway, serves until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from aiohttp import web

from appliance import settings as settings_room
from appliance.daemon import differences
from appliance.daemon import record as records
from appliance.daemon.commands import Commands
from appliance.daemon.download import Download
from appliance.daemon.following import fetch
from appliance.daemon.host import HostSide
from appliance.daemon.rooms import Rooms
from appliance.daemon.seated import seated
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.status import Parts, document, file_problems
from appliance.daemon.surroundings import bind, is_answered, log_file, stop_signals
from appliance.engines import end_orphans
from appliance.errors import ApplianceError, UsageError
from appliance.gateway.app import make_app, make_runner
from appliance.gateway.control import routes
from appliance.gateway.data import GATE
from appliance.gateway.gate import Gate
from appliance.operations.lessons.learning import Lessons
from appliance.operations.lessons.load_times import Estimate
from appliance.operations.machine.survey import Note
from appliance.operations.models import Library
from appliance.operations.plans.plan import Wishes
from appliance.operations.start_estimate import estimate_for
from appliance.paths import Paths

log = logging.getLogger("appliance.daemon")
SHUTDOWN_S = 5.0
"""So long running replies may go on after the stop; then they end with an error event."""
RECENT_ROWS = 20


@dataclass(frozen=True, slots=True)
class Options:
    """What `up` was called with; None means the setting holds."""

    model: str | None = None
    host: str | None = None
    port: int | None = None
    retry: bool = False
    """Try also what ran out of memory before."""
    wishes: Wishes = field(default_factory=Wishes)


class Reporter(Protocol):
    """Tells the person (or the parent process) how the start goes."""

    def progress(self, download: Download) -> None: ...
    def loading(self, ref: str, estimate: Estimate | None) -> None: ...
    def note(self, note: Note) -> None: ...
    def ready(self, document: Mapping[str, Any]) -> None: ...


class Interrupted(Exception):
    """Stopped by a signal before it was ready."""


async def serve(paths: Paths, options: Options, reporter: Reporter) -> None:
    """Serve until SIGINT, SIGTERM or `/api/shutdown`.

    Raises Interrupted when that comes before the model is ready, else the ApplianceError of the start.
    """
    library = _open(paths, options)
    lock = records.DaemonLock(paths)
    lock.take()
    try:
        with log_file(paths):
            await _Daemon(paths, library, reporter).run(options)
    finally:
        lock.release()


def _open(paths: Paths, options: Options) -> Library:
    paths.make()
    loaded = settings_room.load(paths.config_file)
    changed = {key: value for key in ("host", "port") if (value := getattr(options, key)) is not None}
    loaded = loaded.model_copy(update={"server": loaded.server.model_copy(update=changed)})
    _require_loopback(loaded.server.host)
    return Library.open(paths, loaded)


def _require_loopback(host: str) -> None:
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    if host == "localhost":
        return
    raise UsageError(
        f"The gateway can't listen on {host}.",
        cause="An address that other machines reach needs keys, and this version has none.",
        hint="Use --host 127.0.0.1 (the default).",
    )


class _Daemon:
    """One run: what is built, in which order, and the same order backwards."""

    def __init__(self, paths: Paths, library: Library, reporter: Reporter) -> None:
        self._paths = paths
        self._reporter = reporter
        self._rooms = Rooms(paths, library)
        self._stop = asyncio.Event()
        self._asked_to_stop = False
        self._host = HostSide(self._rooms)
        self._gate: Gate | None = None
        self._record: records.Record | None = None

    def _clean_up_after_a_dead_daemon(self) -> None:
        """We hold the lock: engines and sockets that are here belong to nobody any more."""
        end_orphans(self._paths)
        for left in self._paths.runtime.glob("*.sock"):
            if not is_answered(left):
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)

    async def run(self, options: Options) -> None:
        runner: web.AppRunner | None = None
        try:
            await asyncio.to_thread(self._clean_up_after_a_dead_daemon)
            await self._rooms.start()
            record = records.new_record("http://127.0.0.1")
            commands = Commands(self._rooms, self._status, self._stop_by_command)
            app = make_app(self._host.ports(), control=routes(commands, record.token))
            self._gate = app[GATE]
            runner = make_runner(app, shutdown_timeout_s=SHUTDOWN_S)
            await runner.setup()
            url = await bind(runner, self._rooms.library.settings.server)
            self._record = replace(record, url=url)
            records.write(self._paths, self._record)
            self._rooms.downloads.begin()
            with stop_signals(self._stop.set):
                await self._until_stopped(options)
        finally:
            self._rooms.changes.close()  # who follows events lets go of the gateway
            if runner is not None:
                await runner.cleanup()
            await self._rooms.stop()
            if self._record is not None:
                records.remove(self._paths, self._record)

    def _stop_by_command(self) -> None:
        self._asked_to_stop = True
        self._stop.set()

    async def _until_stopped(self, options: Options) -> None:
        """Bring the model up, then wait. A start that fails ends the daemon with its error."""
        start = asyncio.create_task(self._bring_up(options))
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({start, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            if self._asked_to_stop:
                return  # `appliance down`: nobody was interrupted
            raise Interrupted
        try:
            start.result()
            await stopped
        finally:
            stopped.cancel()

    async def _bring_up(self, options: Options) -> None:
        rooms = self._rooms
        if options.model is not None:
            ref = rooms.library.resolve(options.model)
            if await asyncio.to_thread(rooms.library.store.find, ref.ref) is None:
                await fetch(rooms.downloads, ref, self._reporter.progress)
            self._reporter.loading(ref.ref, await estimate_for(rooms.library, ref))
            if options.retry:
                sha256 = ref.variant.main.sha256
                await asyncio.to_thread(Lessons(self._paths.learned).forget_ran_out, sha256)
            await rooms.here.look()
            await rooms.pool.load(ref, options.wishes)
            for note in self._load_notes():
                self._reporter.note(note)
        self._reporter.ready(self._ready_document())
        await self._preload()

    async def _preload(self) -> None:
        """What the settings want loaded beside it, as far as it fits; requests are served meanwhile."""
        rooms = self._rooms
        for name in rooms.library.settings.models.preload:
            try:
                ref = rooms.here.resolve(name)
                await rooms.pool.preload(ref)
            except ApplianceError as error:
                log.warning("models.preload: %s is not loaded: %s", name, error.message)

    def _served(self) -> ServingSnapshot:
        """The model of requests that name none."""
        default = self._rooms.pool.default
        return ServingSnapshot() if default is None else default.serving.snapshot

    def _load_notes(self) -> tuple[Note, ...]:
        """What the load became, where that is less than a person would expect."""
        serving = self._served()
        unused = serving.survey.gpu_unused() if serving.survey is not None else None
        return (*([unused] if unused is not None else []), *differences.notes(serving))

    def _ready_document(self) -> dict[str, Any]:
        """The line of `up --json`."""
        assert self._record is not None
        serving = self._served()
        return {
            "url": f"{self._record.url}/v1",
            "model": serving.ref.ref if serving.ref is not None else None,
            "engine": serving.engine.build if serving.engine is not None else None,
            "pid": self._record.pid,
            "plan": serving.plan.to_json() if serving.plan is not None else None,
            "notes": [note.to_json() for note in self._load_notes()],
        }

    async def _status(self) -> dict[str, Any]:
        assert self._record is not None
        assert self._gate is not None
        rooms = self._rooms
        return document(
            Parts(
                record=self._record,
                serving=self._served(),
                seats=tuple(seated(rooms.pool, seat) for seat in rooms.pool),
                monitor=rooms.monitor.snapshot,
                awake=rooms.awake.view,
                queue=rooms.local.queue_snapshot(),
                remotes=tuple(rooms.remote_rows()),
                downloads=rooms.downloads.snapshot,
                today=await rooms.journal.today(),
                running=tuple(
                    course.row().to_json() | {"status": None} for course in self._gate.receipts.running()
                ),
                recent=await rooms.journal.recent(RECENT_ROWS),
                halted=rooms.pool.halted,
                prompts=rooms.prompts.snapshot,
                policy=rooms.library.settings.routing.policy,
                paths=self._paths,
                problems=(
                    *file_problems(
                        rooms.downloads.problem,
                        rooms.library.catalog_problem,
                        rooms.journal.lost,
                        rooms.journal.problem,
                    ),
                    *rooms.prompts.notes(),
                ),
            )
        )
