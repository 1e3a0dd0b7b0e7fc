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
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.engines import pidfile, wire
from appliance.engines.adapters import Listen, command
from appliance.engines.failures import exit_text, explain
from appliance.engines.loading import Limits, load
from appliance.engines.logparse import LoadReader
from appliance.engines.logs import LogFile, LogRing
from appliance.engines.process import Child, spawn, unlink
from appliance.engines.values import Build, Endpoint, EngineSnapshot, EngineState, Launch, LogLine
from appliance.errors import ApplianceError, EngineFailed, EngineUnavailable
from appliance.paths import Paths

log = logging.getLogger("appliance.engines")

_DEFAULTS = Limits()
_SOCKET_PATH_LIMIT = 107
_SHOWN_LINES = 20


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
    ) -> None:
        self._build, self._launch, self._paths = build, launch, paths
        self._on_change, self._limits = on_change, limits
        self._ring = ring or LogRing()
        self._id = secrets.token_hex(4)
        self._file = LogFile(paths.logs / f"engine-{_file_name(launch.model_id)}.log")
        self._state: EngineState = "absent"
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._settled = asyncio.Event()
        self._child: Child | None = None
        self._reader = LoadReader()
        self._endpoint: Endpoint | None = None
        self._generation = 0
        self._props = wire.Props(None, None)
        self._busy = 0
        self._speed: float | None = None
        self._crashes: deque[float] = deque()
        self._restarts = 0
        self._proven = False
        """It was ready once since `start()`."""
        self._note: Path | None = None
        self._started_at: float | None = None
        self._ready_at: float | None = None
        self._error: EngineFailed | None = None

    # -- what others see ---------------------------------------------------------------------------

    @property
    def endpoint(self) -> Endpoint | None:
        """Where to send requests; None unless ready."""
        return self._endpoint if self._state in ("ready", "busy") else None

    @property
    def snapshot(self) -> EngineSnapshot:
        loaded = self._state in ("ready", "busy")
        return EngineSnapshot(
            id=self._id,
            model=self._launch.model_id,
            kind=self._build.kind,
            build=self._build.build,
            pid=self._child.pid if self._child is not None else None,
            state=self._state,
            gpu_layers=self._reader.gpu_layers if loaded else None,
            n_layer=self._launch.plan.n_layer,
            ctx=self._props.ctx if loaded else None,
            parallel=self._props.slots if loaded else None,
            slots_busy=self._busy,
            tokens_per_second=self._speed,
            restarts=self._restarts,
            started_at=self._started_at,
            ready_at=self._ready_at,
            error=self._error.message if self._error is not None else None,
            hint=self._error.hint if self._error is not None else None,
            last_lines=self._ring.last(_SHOWN_LINES),
            log_file=str(self._file.path),
            buffers=self._reader.buffers,
        )

    def lines(self, after_seq: int = 0, limit: int = 500) -> tuple[LogLine, ...]:
        """The log after `after_seq`, oldest first; it goes on over restarts."""
        return self._ring.lines(after_seq, limit)

    @contextmanager
    def busy(self) -> Iterator[Endpoint]:
        """Hold one slot for a request. Raises EngineUnavailable when the engine is not ready."""
        endpoint = self.endpoint
        if endpoint is None:
            raise EngineUnavailable(
                f"The engine for {self._launch.model_id} is {self._state}.",
                cause=self._error.message if self._error is not None else None,
                hint="Try again in a moment.",
            )
        self._busy += 1
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

    # -- commands ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start it; returns at once. Does nothing while it is running or on its way."""
        if self._task is not None and not self._task.done():
            return
        self._stop.clear()
        self._settled.clear()
        self._error = None
        self._crashes.clear()
        self._proven = False
        self._set("starting")
        self._task = asyncio.create_task(self._own(), name=f"engine-{self._id}")

    async def wait_ready(self) -> Endpoint:
        """Wait until requests can be sent.

        Raises EngineFailed (cause, hint, last lines) when it gave up, EngineUnavailable when it was stopped.
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
        task = self._task
        if task is not None:
            await asyncio.shield(task)
        self._error = None
        self._set("absent")

    # -- the owner task ----------------------------------------------------------------------------

    async def _own(self) -> None:
        try:
            while not self._stop.is_set():
                was_ready = await self._live_once()
                if self._stop.is_set():
                    break
                if not self._may_restart(was_ready):
                    self._set("failed")
                    return
                await self._back_off()
        except ApplianceError as error:
            self._fail(error.message, error.cause, error.hint)
        except OSError as error:
            self._fail("The engine could not be started.", error.strerror, "Look at `appliance doctor`.")
        except Exception as error:
            log.exception("The owner task of an engine broke")
            self._fail("The engine could not be run.", type(error).__name__, "Look at `appliance logs`.")
        finally:
            await self._end_child()

    async def _live_once(self) -> bool:
        """One process from its start to its end. True when it had been ready."""
        listen = self._listen()
        self._generation += 1
        endpoint = Endpoint(listen.base_url, listen.socket, secrets.token_hex(32), self._generation)
        child = await self._spawn(listen, endpoint)
        exited = asyncio.create_task(child.process.wait())
        stopped = asyncio.create_task(self._stop.wait())
        loading = asyncio.create_task(
            load(
                child,
                endpoint,
                self._launch,
                self._build.kind,
                reader=self._reader,
                lines=lambda: self._ring.seq,
                limits=self._limits,
            )
        )
        try:
            await asyncio.wait({exited, stopped, loading}, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                return False
            if loading.done() and child.process.returncode is None:
                self._props = loading.result()
                self._ready(endpoint)
                await asyncio.wait({exited, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                await self._ended(child)
            return self._ready_at is not None
        finally:
            for task in (loading, exited, stopped):
                task.cancel()
            await asyncio.gather(loading, exited, stopped, return_exceptions=True)
            await self._end_child()

    async def _spawn(self, listen: Listen, endpoint: Endpoint) -> Child:
        self._reader = reader = LoadReader()
        self._props = wire.Props(None, None)
        self._ready_at, self._started_at = None, time.time()
        unlink(listen.socket)
        marker = secrets.token_hex(16)
        what = await command(self._build, self._launch, listen, key=endpoint.key, marker=marker)
        self._child = child = await spawn(
            what, marker=marker, ring=self._ring, on_line=reader.feed, secret=endpoint.key, file=self._file
        )
        self._endpoint = endpoint
        self._note = pidfile.write(self._paths, child, listen.socket)
        self._set("loading")
        return child

    def _ready(self, endpoint: Endpoint) -> None:
        self._ready_at = time.time()
        self._error = None
        self._set("busy" if self._busy else "ready")
        log.info(
            "%s is ready after %.1f s: %d layers on a device, generation %d",
            self._launch.model_id, self._ready_at - (self._started_at or self._ready_at),
            self._reader.gpu_layers, endpoint.generation,
        )  # fmt: skip

    async def _ended(self, child: Child) -> None:
        """Note why the process ended by itself."""
        if self._ready_at is not None:
            self._set("starting")  # at once: nobody shall send a request to it any more
        code = await child.wait()
        why = explain(code, self._reader.failure)
        when = "while loading" if self._ready_at is None else "while serving"
        self._error = self._failure(f"The engine ended {when} ({exit_text(code)}).", why.cause, why.hint)
        log.error("%s", self._error.message)

    def _may_restart(self, was_ready: bool) -> bool:
        """A first load that fails will fail again; a crash of a working engine is answered a few times."""
        now = time.monotonic()
        self._crashes.append(now)
        while self._crashes and now - self._crashes[0] > self._limits.window_s:
            self._crashes.popleft()
        self._proven = self._proven or was_ready
        if not self._proven:
            return False
        if len(self._crashes) <= self._limits.restarts:
            return True
        if self._error is not None:
            self._error = self._failure(
                f"The engine crashed {len(self._crashes)} times in {self._limits.window_s / 60:.0f} minutes; "
                "it is not restarted any more.", self._error.cause, self._error.hint,
            )  # fmt: skip
        return False

    async def _back_off(self) -> None:
        self._restarts += 1
        self._ring.add(f"[appliance] restart {self._restarts}: {self._error.message if self._error else ''}")
        self._set("starting")
        steps = self._limits.backoff_s
        delay = steps[min(len(self._crashes), len(steps)) - 1] if steps else 0.0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._stop.wait()

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if self._stop.is_set():
            self._set("stopping")
        await child.end(self._limits.stop_s)
        unlink(self._endpoint.socket if self._endpoint is not None else None)
        unlink(self._note)
        self._endpoint = self._note = None

    # -- small helpers -----------------------------------------------------------------------------

    def _listen(self) -> Listen:
        path = str(self._paths.runtime / f"engine-{self._id}.sock")
        if hasattr(socket, "AF_UNIX") and len(path.encode()) <= _SOCKET_PATH_LIMIT:
            self._paths.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
            return Listen(path, 0)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return Listen("127.0.0.1", int(free.getsockname()[1]))

    def _failure(self, message: str, cause: str | None, hint: str | None) -> EngineFailed:
        return EngineFailed(message, cause=cause, hint=hint, lines=self._ring.last(_SHOWN_LINES))

    def _fail(self, message: str, cause: str | None, hint: str | None) -> None:
        self._error = self._failure(message, cause, hint)
        self._set("failed")

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


def _file_name(model_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", model_id)[:80]
