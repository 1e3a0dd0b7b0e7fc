"""One engine, one owner task.

| state      | means                                   | left by                                        |
|------------|-----------------------------------------|------------------------------------------------|
| `absent`   | nothing runs                            | `start()`: starting                            |
| `starting` | a process is being started, or back-off | started: loading; `stop()`: stopping           |
| `loading`  | it runs and is not ready                | probe ok: ready; ended: failed (or starting)   |
| `ready`    | it answers                              | a lease: busy; ended or dead: starting, failed |
| `busy`     | it answers and has requests             | last lease back: ready; ended or dead: as above|
| `stopping` | SIGTERM is sent                         | ended: absent                                  |
| `failed`   | given up; `error`, `hint` say why       | `start()`: starting; `stop()`: absent          |

Out of memory leads to `failed` at once, from every state: the same plan would end the same way. Who can plan
with less learns where it ran out from `EngineFailed.out_of_memory`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator

from appliance.engines import reports, wire
from appliance.engines.crashes import Crashes
from appliance.engines.failures import when_given_up
from appliance.engines.incarnation import Incarnation
from appliance.engines.leases import Lease
from appliance.engines.life import Owner, live
from appliance.engines.limits import Limits
from appliance.engines.liveness import Liveness
from appliance.engines.logs import LogRing
from appliance.engines.pace import Pace
from appliance.engines.shown import Shown
from appliance.engines.stopping import unless_stopped
from appliance.engines.values import Build, Endpoint, EngineSnapshot, Launch, LogLine
from appliance.errors import ApplianceError, EngineFailed, EngineUnavailable
from appliance.paths import Paths

log = logging.getLogger("appliance.engines")

_DEFAULTS = Limits()
_LOOK = "Look at `appliance logs` and `appliance doctor`."


class Engine:
    """Runs one build for one launch, restarts it after a crash, and never leaves a process behind.

    The states and what leaves each stand at the top of this module. All methods belong to one event loop;
    start it from the main thread (on Linux the parent-death signal is bound to the spawning thread).
    """

    def __init__(
        self,
        build: Build,
        launch: Launch,
        *,
        paths: Paths,
        on_change: Callable[[EngineSnapshot], None] = lambda _: None,
        limits: Limits = _DEFAULTS,
        ring: LogRing | None = None,
        before_start: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`before_start` is awaited before each process, also the one after a crash: it proves that the model
        file may be served. An ApplianceError that it raises ends in `failed`, and `wait_ready` raises it as
        it is.
        """
        self._build, self._launch, self._paths = build, launch, paths
        self._limits, self._before_start = limits, before_start
        self._shown = Shown(build, launch, paths, ring or LogRing(), on_change)
        self._name = secrets.token_hex(4)
        """Of its socket."""
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._generation = 0
        self._crashes, self._pace = Crashes(limits), Pace()
        self._liveness: Liveness | None = None

    @property
    def build(self) -> Build:
        """The build that it runs."""
        return self._build

    @property
    def launch(self) -> Launch:
        """What it serves."""
        return self._launch

    @property
    def endpoint(self) -> Endpoint | None:
        """Where to send requests; None unless ready."""
        return self._shown.endpoint

    @property
    def snapshot(self) -> EngineSnapshot:
        return self._shown.snapshot

    def lines(self, after_seq: int = 0, limit: int = 500) -> tuple[LogLine, ...]:
        """The log after `after_seq`, oldest first; it goes on over restarts."""
        return self._shown.ring.lines(after_seq, limit)

    @contextlib.contextmanager
    def busy(self) -> Iterator[Lease]:
        """Hold one slot for a request; the lease is told how it goes (`beat`, then `worked` or `suspect`).

        Raises EngineUnavailable when the engine is not ready.
        """
        shown = self._shown
        endpoint = shown.endpoint
        if endpoint is None:
            raise EngineUnavailable(
                f"The engine for {self._launch.model_id} is {shown.state}.",
                cause=shown.error.message if shown.error is not None else None,
                hint="Try again in a moment.",
            )
        lease = shown.leases.take(endpoint)
        shown.follow_leases()
        try:
            yield lease
        finally:
            shown.leases.give_back(lease)
            shown.follow_leases()

    async def probe(self) -> bool:
        """Have it prove that it works: by a running reply, or else one token. True when it does.

        False when it is not ready, or does not work: then it is being started again. For use when there is a
        reason to doubt, such as after a suspend: each probe costs a slot its prompt cache.
        """
        return await self._liveness.probe() if self._liveness is not None else False

    def observe_speed(self, tokens_per_second: float) -> None:
        """Tell a measured decode speed; the snapshot shows a smoothed one."""
        if tokens_per_second > 0:
            old = self._shown.speed
            self._shown.speed = tokens_per_second if old is None else 0.7 * old + 0.3 * tokens_per_second

    async def start(self) -> None:
        """Start it; waits for a stop under way, and for nothing else.

        Does nothing while it is running or on its way.
        """
        while self._task is not None and not self._task.done():
            if not self._stop.is_set():
                return
            await asyncio.shield(self._task)
        self._stop.clear()
        self._shown.settled.clear()
        self._shown.error = None
        self._crashes.forget()
        self._shown.set("starting")
        self._task = asyncio.create_task(self._own(), name=f"engine-{self._name}")

    async def wait_ready(self) -> Endpoint:
        """Wait until requests can be sent.

        Raises EngineFailed (cause, hint, last lines) when it gave up, what `before_start` raised when that
        refused the start, EngineUnavailable when it was stopped.
        """
        shown = self._shown
        while True:
            if shown.endpoint is not None:
                return shown.endpoint
            if shown.state == "failed" and shown.error is not None:
                raise shown.error
            if shown.state in ("absent", "stopping"):
                raise EngineUnavailable(
                    f"The engine for {self._launch.model_id} is {shown.state}.", hint="Start it first."
                )
            shown.settled.clear()
            await shown.settled.wait()

    async def stop(self) -> None:
        """SIGTERM, SIGKILL after a limit; returns once no process and no socket is left."""
        self._stop.set()
        task = self._task
        if task is not None:
            await asyncio.shield(task)
        if self._task is task and self._shown.state != "absent":  # it had failed
            self._shown.error = None
            self._shown.set("absent")

    async def _own(self) -> None:
        note = self._shown.note
        try:
            while not self._stop.is_set() and self._goes_on(await self._live_once()):
                await self._back_off()
        except EngineFailed as error:
            note(error)
        except ApplianceError as error:
            log.error("%s is not started: %s", self._launch.model_id, error.message)
            self._shown.error = error
        except OSError as error:
            note(EngineFailed("The engine could not be started.", cause=error.strerror, hint=_LOOK))
        except Exception as error:
            log.exception("The owner task of an engine broke")
            note(EngineFailed("The engine broke.", cause=type(error).__name__, hint=_LOOK))
        finally:
            await self._end_life()
        if self._stop.is_set():
            self._shown.error = None
        self._shown.set("absent" if self._stop.is_set() else "failed")

    def _goes_on(self, was_ready: bool) -> bool:
        """Whether a crash is answered by a restart. A plan that ran out of memory would do so again."""
        if self._stop.is_set() or self._shown.out_of_memory is not None:
            return False
        if self._crashes.answered(was_ready):
            self._shown.restarts = self._crashes.restarts
            return True
        if self._crashes.many and (last := self._shown.error) is not None:
            hint = when_given_up(last.hint, self._launch.model_id)
            self._shown.note(EngineFailed(self._crashes.sentence, cause=last.cause, hint=hint))
        return False

    async def _live_once(self) -> bool:
        """One process from its start to its end. True when it had been ready."""
        shown = self._shown
        shown.props, shown.ready_at = wire.Props(None, None), None
        if not await self._proved():
            return False
        self._generation += 1
        shown.life = life = await Incarnation.start(
            self._build, self._launch, paths=self._paths, name=self._name, generation=self._generation,
            ring=shown.ring, file=shown.file, pace=self._pace,
        )  # fmt: skip
        shown.set("loading")
        owner = Owner(self._stop, self._proved, self._ready, self._lost, self._served)
        report = None
        try:
            ending = await live(life, self._build.kind, self._limits, owner)
            if ending is not None:
                report = shown.crashed(ending)
        finally:
            self._liveness = None
            await self._end_life()
        if report is not None:
            await asyncio.to_thread(reports.write, self._paths, self._launch.model_id, report)
        return shown.ready_at is not None

    async def _proved(self) -> bool:
        return self._before_start is None or await unless_stopped(self._before_start(), self._stop)

    def _ready(self, props: wire.Props) -> Liveness:
        life = self._shown.life
        assert life is not None
        self._shown.became_ready(props, life)
        self._liveness = Liveness(
            self._build.kind, self._launch, life.endpoint,
            leases=self._shown.leases, pace=self._pace, reader=life.reader, limits=self._limits,
        )  # fmt: skip
        return self._liveness

    def _served(self) -> int | None:
        return None if self._shown.ready_at is None else self._shown.leases.requests

    def _lost(self) -> None:
        self._shown.set("starting")

    async def _back_off(self) -> None:
        pause_s = self._crashes.pause_s
        self._shown.say(f"restart {self._crashes.restarts} in {pause_s:g} s")
        self._shown.set("starting")
        await unless_stopped(asyncio.sleep(pause_s), self._stop)

    async def _end_life(self) -> None:
        life, self._shown.life = self._shown.life, None
        if life is not None:
            if self._stop.is_set():
                self._shown.set("stopping")
            try:
                await life.end(self._limits.stop_s)
            except Exception:
                log.exception("An engine was not ended cleanly")  # its state must not stay behind
