"""One engine, one owner task.

| state      | means                                   | left by                                        |
|------------|-----------------------------------------|------------------------------------------------|
| `absent`   | nothing runs                            | `start()`: starting                            |
| `starting` | a process is being started, or back-off | started: loading; `stop()`: stopping           |
| `loading`  | it runs and is not ready                | probe ok: ready; ended: failed (or starting)   |
| `ready`    | it answers                              | a lease: busy; ended: starting (or failed)     |
| `busy`     | it answers and has requests             | last lease back: ready; ended: starting        |
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
import time
from collections.abc import Awaitable, Callable, Iterator

from appliance.engines import wire
from appliance.engines.crashes import Crashes
from appliance.engines.incarnation import Incarnation
from appliance.engines.loading import Limits
from appliance.engines.logs import LogRing, file_of
from appliance.engines.stopping import unless_stopped
from appliance.engines.values import Build, Endpoint, EngineSnapshot, EngineState, Launch, LogLine
from appliance.errors import ApplianceError, EngineFailed, EngineUnavailable
from appliance.paths import Paths

log = logging.getLogger("appliance.engines")

_DEFAULTS = Limits()
_SHOWN_LINES = 20
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
        self._on_change, self._limits, self._before_start = on_change, limits, before_start
        self._ring = ring or LogRing()
        self._name = secrets.token_hex(4)
        """Of its socket."""
        self._file = file_of(paths, launch.model_id)
        self._state: EngineState = "absent"
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._settled = asyncio.Event()
        self._life: Incarnation | None = None
        self._generation = 0
        self._props = wire.Props(None, None)
        self._busy = self._requests = 0  # now, and since the process is ready
        self._speed: float | None = None
        self._crashes = Crashes(limits)
        self._first_seq = self._ring.seq
        """Log lines up to here are of an engine before this one."""
        self._ready_at: float | None = None
        self._error: ApplianceError | None = None

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
        return self._life.endpoint if self._life is not None and self._state in ("ready", "busy") else None

    @property
    def snapshot(self) -> EngineSnapshot:
        life, loaded = self._life, self._state in ("ready", "busy")
        return EngineSnapshot(
            id=self._launch.model_id,
            model=self._launch.model_id,
            kind=self._build.kind,
            build=self._build.build,
            pid=life.child.pid if life is not None else None,
            state=self._state,
            gpu_layers=life.gpu_layers if life is not None and loaded else None,
            n_layer=self._launch.plan.n_layer,
            ctx=self._props.ctx if loaded else None,
            parallel=self._props.slots if loaded else None,
            slots_busy=self._busy,
            tokens_per_second=self._speed,
            restarts=self._crashes.restarts,
            started_at=life.started_at if life is not None else None,
            ready_at=self._ready_at,
            error=self._error.message if self._error is not None else None,
            cause=self._error.cause if self._error is not None else None,
            hint=self._error.hint if self._error is not None else None,
            last_lines=self._ring.last(_SHOWN_LINES, self._first_seq),
            log_file=str(self._file.path),
            out_of_memory=self._out_of_memory,
            buffers=life.reader.buffers if life is not None else {},
        )

    def lines(self, after_seq: int = 0, limit: int = 500) -> tuple[LogLine, ...]:
        """The log after `after_seq`, oldest first; it goes on over restarts."""
        return self._ring.lines(after_seq, limit)

    @contextlib.contextmanager
    def busy(self) -> Iterator[Endpoint]:
        """Hold one slot for a request. Raises EngineUnavailable when the engine is not ready."""
        endpoint = self.endpoint
        if endpoint is None:
            raise EngineUnavailable(
                f"The engine for {self._launch.model_id} is {self._state}.",
                cause=self._error.message if self._error is not None else None,
                hint="Try again in a moment.",
            )
        self._busy, self._requests = self._busy + 1, self._requests + 1
        self._follow_leases()
        try:
            yield endpoint
        finally:
            self._busy -= 1
            self._follow_leases()

    def observe_speed(self, tokens_per_second: float) -> None:
        """Tell a measured decode speed; the snapshot shows a smoothed one."""
        if tokens_per_second > 0:
            old = self._speed
            self._speed = tokens_per_second if old is None else 0.7 * old + 0.3 * tokens_per_second

    async def start(self) -> None:
        """Start it; returns at once. Does nothing while it is running or on its way."""
        if self._task is not None and not self._task.done():
            return
        self._stop.clear()
        self._settled.clear()
        self._error = None
        self._crashes.forget()
        self._set("starting")
        self._task = asyncio.create_task(self._own(), name=f"engine-{self._name}")

    async def wait_ready(self) -> Endpoint:
        """Wait until requests can be sent.

        Raises EngineFailed (cause, hint, last lines) when it gave up, what `before_start` raised when that
        refused the start, EngineUnavailable when it was stopped.
        """
        while True:
            endpoint = self.endpoint
            if endpoint is not None:
                return endpoint
            if self._state == "failed" and self._error is not None:
                raise self._error
            if self._state in ("absent", "stopping"):
                raise EngineUnavailable(
                    f"The engine for {self._launch.model_id} is {self._state}.", hint="Start it first."
                )
            self._settled.clear()
            await self._settled.wait()

    async def stop(self) -> None:
        """SIGTERM, SIGKILL after a limit; returns once no process and no socket is left."""
        self._stop.set()
        if self._task is not None:
            await asyncio.shield(self._task)
        self._error = None
        self._set("absent")

    async def _own(self) -> None:
        try:
            while not self._stop.is_set() and self._goes_on(await self._live_once()):
                await self._back_off()
            if self._stop.is_set():
                return
        except EngineFailed as error:
            self._note(error)
        except ApplianceError as error:
            log.error("%s is not started: %s", self._launch.model_id, error.message)
            self._error = error
        except OSError as error:
            self._note(EngineFailed("The engine could not be started.", cause=error.strerror, hint=_LOOK))
        except Exception as error:
            log.exception("The owner task of an engine broke")
            self._note(EngineFailed("The engine broke.", cause=type(error).__name__, hint=_LOOK))
        finally:
            await self._end_life()
        self._set("failed")

    def _goes_on(self, was_ready: bool) -> bool:
        """Whether a crash is answered by a restart. A plan that ran out of memory would do so again."""
        if self._stop.is_set() or self._out_of_memory is not None:
            return False
        if self._crashes.answered(was_ready):
            return True
        if self._crashes.many and (last := self._error) is not None:
            self._note(EngineFailed(self._crashes.sentence, cause=last.cause, hint=last.hint))
        return False

    async def _live_once(self) -> bool:
        """One process from its start to its end. True when it had been ready."""
        self._props, self._ready_at = wire.Props(None, None), None
        if not await self._proved():
            return False
        self._generation += 1
        self._life = life = await Incarnation.start(
            self._build, self._launch, paths=self._paths, name=self._name, generation=self._generation,
            ring=self._ring, file=self._file,
        )  # fmt: skip
        self._set("loading")
        child = life.child
        exited = asyncio.create_task(child.process.wait())
        stopped = asyncio.create_task(self._stop.wait())
        loading = asyncio.create_task(life.load(self._build.kind, self._limits))
        try:
            await asyncio.wait({exited, stopped, loading}, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                return False
            if loading.done() and child.process.returncode is None:
                self._props = loading.result()
                if not await self._proved():  # nothing was swapped before it opened the file
                    return False
                self._ready(life)
                await asyncio.wait({exited, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                await self._ended(life)
            return self._ready_at is not None
        finally:
            for task in (loading, exited, stopped):
                task.cancel()
            await asyncio.gather(loading, exited, stopped, return_exceptions=True)
            await self._end_life()

    async def _proved(self) -> bool:
        """The model's bytes are the pinned ones; False when it is being stopped meanwhile."""
        return self._before_start is None or await unless_stopped(self._before_start(), self._stop)

    def _ready(self, life: Incarnation) -> None:
        self._ready_at, self._requests = time.time(), self._busy
        self._error = None
        self._set("busy" if self._busy else "ready")
        name, took = self._launch.model_id, self._ready_at - life.started_at
        log.info("%s is ready after %.1f s, generation %d", name, took, self._generation)

    async def _ended(self, life: Incarnation) -> None:
        """Note why the process ended by itself."""
        if self._ready_at is not None:
            self._set("starting")  # at once: nobody shall send a request to it any more
        message, why = await life.last_words(None if self._ready_at is None else self._requests)
        self._note(EngineFailed(message, cause=why.cause, hint=why.hint, out_of_memory=why.memory))
        log.error("%s", message)

    async def _back_off(self) -> None:
        why = self._error.message if self._error is not None else ""
        self._ring.add(f"[appliance] restart {self._crashes.restarts}: {why}")
        self._set("starting")
        await unless_stopped(asyncio.sleep(self._crashes.pause_s), self._stop)

    async def _end_life(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            if self._stop.is_set():
                self._set("stopping")
            await life.end(self._limits.stop_s)

    def _note(self, error: EngineFailed) -> None:
        """Keep why it ended, with what it said last."""
        error.lines = self._ring.last(_SHOWN_LINES, self._first_seq)
        self._error = error

    @property
    def _out_of_memory(self) -> str | None:
        return self._error.out_of_memory if isinstance(self._error, EngineFailed) else None

    def _follow_leases(self) -> None:
        if self._state in ("ready", "busy"):
            self._set("busy" if self._busy else "ready")

    def _set(self, state: EngineState) -> None:
        self._state = state
        self._settled.set()
        try:
            self._on_change(self.snapshot)
        except Exception:
            log.exception("A listener of the engine failed")
