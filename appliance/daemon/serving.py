"""The one model that is served: which engine runs it, by which plan, and what became of it.

| state      | meaning                                                             |
| ---------- | ------------------------------------------------------------------- |
| `absent`   | no model, or unloaded                                               |
| `starting` | files checked, header read, plan made                               |
| `loading`, `ready`, `busy`, `stopping`, `failed` | what the engine's own task says       |

Commands (`load`, `unload`, `restart`) are carried out one after the other by one task, so two callers can't
start two engines. Everyone else reads `snapshot`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from appliance.catalog import ModelRef
from appliance.engines import Endpoint, Engine, EngineSnapshot, EngineState, Launch, LogLine, LogRing
from appliance.errors import ApplianceError, EngineUnavailable, ModelMissing, NotVerified
from appliance.operations.models import Library
from appliance.operations.plan import Wishes, plan_file, request_for, require_fit
from appliance.operations.survey import Survey, survey
from appliance.planning import Plan

log = logging.getLogger("appliance.serving")
MAX_COMMANDS = 8


@dataclass(frozen=True, slots=True)
class ServingSnapshot:
    """What is served now."""

    ref: ModelRef | None = None
    state: EngineState = "absent"
    plan: Plan | None = None
    engine: EngineSnapshot | None = None
    survey: Survey | None = None
    error: ApplianceError | None = None
    """Why the state is `failed`, or `absent` without a person's wish."""
    since: float = 0.0
    """Unix time of the last change of state."""
    loaded_since: float | None = None
    """Unix time of the load that this comes from."""


class Serving:
    """Owns the resident engine."""

    def __init__(self, library: Library, on_change: Callable[[ServingSnapshot], None]) -> None:
        self._library = library
        self._on_change = on_change
        self._snapshot = ServingSnapshot(since=time.time())
        self._engine: Engine | None = None
        self._ring = LogRing()
        self._wishes = Wishes()
        self._commands: asyncio.Queue[tuple[Callable[[], Awaitable[None]], asyncio.Future[None]]]
        self._commands = asyncio.Queue(MAX_COMMANDS)
        self._owner: asyncio.Task[None] | None = None

    @property
    def snapshot(self) -> ServingSnapshot:
        return self._snapshot

    def uses(self, ref: str) -> bool:
        """The engine runs with this model's files, or ended because they are not right."""
        current = self._snapshot
        if current.ref is None or current.ref.ref != ref or current.state == "absent":
            return False
        return current.state != "failed" or isinstance(current.error, NotVerified | ModelMissing)

    def lacks(self, ref: str) -> bool:
        """This model would be served, but its files were damaged, or removed."""
        current = self._snapshot
        if current.ref is None or current.ref.ref != ref or current.state not in ("failed", "absent"):
            return False
        return isinstance(current.error, NotVerified | ModelMissing)

    @property
    def engine(self) -> Engine | None:
        """The engine, for leases, log lines and measured speeds."""
        return self._engine

    def lines(self, after: int, limit: int) -> tuple[LogLine, ...]:
        """Log lines of the engine, and of those before it, with a sequence number above `after`."""
        return self._ring.lines(after, limit)

    @property
    def endpoint(self) -> Endpoint | None:
        """Where to send a request; None unless the engine is ready."""
        return self._engine.endpoint if self._engine is not None else None

    def use(self, library: Library) -> None:
        """Take over changed settings; they act at the next load."""
        self._library = library

    def start(self) -> None:
        self._owner = asyncio.create_task(self._run(), name="serving")

    async def stop(self) -> None:
        """Stop the engine and the owner task."""
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.gather(self._owner, return_exceptions=True)
        while not self._commands.empty():
            self._commands.get_nowait()[1].cancel()
        await self._unload()

    async def load(self, ref: ModelRef, wishes: Wishes | None = None) -> None:
        """Serve this model; the one before is stopped first. Raises what loading ended with."""
        await self._command(lambda: self._load(ref, wishes or Wishes()))

    async def unload(self, why: ApplianceError | None = None) -> None:
        """Stop the engine and keep the choice of model. `why` is what requests for it are told."""

        async def stop() -> None:
            await self._unload()
            if why is not None:
                self._set(replace(self._snapshot, error=why))

        await self._command(stop)

    async def give_up(self, error: ApplianceError) -> None:
        """Stop the engine: its model can't be trusted any more. The state is `failed` with this error."""

        async def stop() -> None:
            await self._unload()
            raise error

        with contextlib.suppress(ApplianceError):
            await self._command(stop)

    async def restart(self) -> None:
        """Load the same model again with what is free now."""
        ref = self._snapshot.ref
        if ref is None:
            raise ModelMissing("No model was loaded, so none can be restarted.", hint="appliance up MODEL")
        await self._command(lambda: self._load(ref, self._wishes))

    async def _command(self, run: Callable[[], Awaitable[None]]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._commands.put_nowait((run, done))
        except asyncio.QueueFull:
            raise EngineUnavailable(
                "Too many commands are waiting for the engine.", hint="Try again."
            ) from None
        await done

    async def _run(self) -> None:
        while True:
            run, done = await self._commands.get()
            if done.cancelled():
                continue  # nobody waits for it any more, so nothing is loaded for nobody
            try:
                await run()
            except ApplianceError as error:
                await self._fail(error)
                if not done.cancelled():
                    done.set_exception(error)
            except Exception as error:
                log.exception("loading failed unexpectedly")
                wrapped = ApplianceError("The model can't be loaded.", cause=type(error).__name__)
                await self._fail(wrapped)
                if not done.cancelled():
                    done.set_exception(wrapped)
            else:
                if not done.cancelled():
                    done.set_result(None)
            finally:
                if not done.done():
                    done.cancel()  # this task is being ended: nobody waits for ever

    async def _load(self, ref: ModelRef, wishes: Wishes) -> None:
        await self._unload()
        self._wishes = wishes
        now = time.time()
        self._set(ServingSnapshot(ref=ref, state="starting", since=now, loaded_since=now))
        stored = await self._library.require(ref)
        settings = self._library.settings
        looked = await survey(settings, wishes.engine, wake=True)
        self._set(replace(self._snapshot, survey=looked))
        embedding = "embedding" in ref.model.use
        plan = await plan_file(
            stored.main,
            model=ref.ref,
            looked=looked,
            request=request_for(settings, wishes, embedding=embedding),
            paths=self._library.paths,
        )
        self._set(replace(self._snapshot, plan=plan))
        require_fit(plan)
        launch = Launch(model_id=ref.ref, model_path=stored.main, plan=plan, embedding=embedding)
        engine = Engine(
            looked.build(),
            launch,
            paths=self._library.paths,
            on_change=self._engine_changed,
            ring=self._ring,
            before_start=lambda: self._prove(ref),
        )
        self._engine = engine
        await engine.start()
        await engine.wait_ready()
        self._library.remember(ref.ref)

    async def _prove(self, ref: ModelRef) -> None:
        """Before each process, also the one after a crash: the bytes are still the pinned ones."""
        await self._library.require(ref)

    async def _unload(self) -> None:
        if self._engine is not None:
            await self._engine.stop()  # still ours meanwhile: its `stopping` is what others see
            self._engine = None
        current = self._snapshot
        if current.state != "absent" or current.engine is not None or current.error is not None:
            self._set(replace(self._snapshot, state="absent", engine=None, error=None))

    async def _fail(self, error: ApplianceError) -> None:
        """Nothing of a load that failed goes on running; an engine that gave up keeps its last words."""
        if self._engine is not None and self._engine.snapshot.state != "failed":
            engine, self._engine = self._engine, None
            try:
                await engine.stop()
            except Exception:
                log.exception("an engine did not stop cleanly")  # the owner task must go on
        self._set(replace(self._snapshot, state="failed", error=error))

    def _engine_changed(self, snapshot: EngineSnapshot) -> None:
        if self._engine is not None:
            self._set(replace(self._snapshot, state=snapshot.state, engine=snapshot))

    def _set(self, snapshot: ServingSnapshot) -> None:
        changed = snapshot.state != self._snapshot.state
        self._snapshot = replace(snapshot, since=time.time() if changed else self._snapshot.since)
        self._on_change(self._snapshot)
