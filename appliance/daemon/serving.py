"""The one model that is served: which engine runs it, by which plan, and what became of it.

| state      | meaning                                                             |
| ---------- | ------------------------------------------------------------------- |
| `absent`   | no model, or unloaded                                               |
| `starting` | files checked, header read, plan made; an engine makes way for another plan |
| `loading`, `ready`, `busy`, `stopping`, `failed` | what the engine's own task says       |

Commands (`load`, `unload`, `restart`, `replan`, `prove`) are carried out one after the other by one task, so
two callers can't start two engines. Everyone else reads `snapshot`.

An engine that makes way for another plan of its model (memory ran out, its GPU is lost, `replan`), or has to
prove itself, is `starting` to others, never `failed` or `stopping`: requests wait, as in any load.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from appliance.catalog import ModelRef
from appliance.daemon.hooks import Hooks, NobodyWaits
from appliance.daemon.launching import prove
from appliance.daemon.loading import Crash, Load, Steps
from appliance.daemon.machine.guard import Guard
from appliance.daemon.machine.proving import works_within
from appliance.daemon.orders import Orders
from appliance.daemon.ran_out import crash_of
from appliance.daemon.resident import Resident
from appliance.daemon.room import Room
from appliance.daemon.served import ServingSnapshot, timed
from appliance.daemon.sketching import what_if
from appliance.engines import Build, Engine, EngineSnapshot, Launch, LogRing
from appliance.errors import ApplianceError, EngineFailed, ModelMissing
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Note, Survey
from appliance.operations.models import Library
from appliance.operations.plans.plan import Wishes
from appliance.planning import Plan

log = logging.getLogger("appliance.serving")
_ANY = Wishes()


class Serving(Resident):
    """Owns the resident engine."""

    def __init__(
        self,
        library: Library,
        on_change: Callable[[ServingSnapshot], None],
        lessons: Lessons | None = None,
        *,
        room: Callable[[], Room] = Room,
        hooks: Hooks | None = None,
        ring: LogRing | None = None,
        guard: Guard | None = None,
    ) -> None:
        """`room`: what other engines leave to this one. `ring` takes its log. `guard` knows lost GPUs."""
        super().__init__(on_change, ring)
        self._guard = guard or Guard()
        self._library = library
        self._room, self._hooks = room, hooks
        self._lessons = lessons or Lessons(library.paths.learned)
        self._wishes = Wishes()
        self._steps: Steps | None = None
        """Of the load that the engine comes from."""
        self._orders = Orders(self._fail)

    def use(self, library: Library) -> None:
        """Take over changed settings; they act at the next load."""
        self._library = library

    def start(self) -> None:
        self._orders.start()

    async def stop(self) -> None:
        await self._orders.stop()
        await self._unload()

    async def load(
        self, ref: ModelRef, wishes: Wishes = _ANY, *, looked: Survey | None = None, again: bool = True
    ) -> None:
        """Serve this model; `again`: also when it is served already. Raises what loading ended with."""

        async def work() -> None:
            if again or self.endpoint is None:
                await self._load(ref, wishes, looked=looked)

        await self._orders.give(work)

    def abandon(self, why: NobodyWaits) -> None:
        """The load that is under way ends with `why`, and nothing of it stays."""
        if self._phase == "loading":
            self._orders.abandon(why)

    async def unload(self, why: ApplianceError | None = None) -> None:
        """Stop the engine and keep the choice of model. `why` is what requests for it are told."""

        async def stop() -> None:
            await self._unload()
            if why is not None:
                self._set(replace(self._snapshot, error=why))

        await self._orders.give(stop)

    async def give_up(self, error: ApplianceError) -> None:
        """Stop the engine: its model can't be trusted any more. The state is `failed` with this error."""

        async def stop() -> None:
            await self._unload()
            raise error

        with contextlib.suppress(ApplianceError):
            await self._orders.give(stop)

    async def restart(self) -> None:
        """Load the same model again with what is free now."""
        ref = self._snapshot.ref
        if ref is None:
            raise ModelMissing("No model was loaded, so none can be restarted.", hint="appliance up MODEL")
        self._guard.pardon()
        await self._orders.give(lambda: self._load(ref, self._wishes))

    async def replan(self, note: Note, still: Callable[[], bool]) -> bool:
        """Load the same model again with what is free now, because of what `note` says; requests wait.

        Only if `still` holds then and it has no request; returns whether. Raises what loading ended with.
        """
        done = False

        async def again() -> None:
            nonlocal done
            ref, engine = self._snapshot.ref, self._engine
            if ref is None or engine is None or engine.snapshot.state != "ready" or not still():
                return
            done, self._phase = True, "leaving"
            log.info("%s is loaded again: %s", ref.ref, note.detail)
            await self._load(ref, self._wishes, note=note)

        await self._orders.give(again)
        return done

    async def prove(self, note: Note, limit_s: float) -> bool | None:
        """Have a ready engine show that it works; one that does not is loaded again, and `note` says why.

        Whether it worked; None: there was none to ask. Raises what loading ended with.
        """
        works: bool | None = None

        async def ask() -> None:
            nonlocal works
            ref, engine = self._snapshot.ref, self._engine
            if ref is None or engine is None or self.endpoint is None:
                return
            self._phase = "leaving"
            try:
                self._engine_changed(engine.snapshot)
                works = await works_within(engine, limit_s)
            finally:
                self._phase = ""
            if not works:
                await self._load(ref, self._wishes, note=note, broken=True)
            else:
                self._engine_changed(engine.snapshot)

        await self._orders.give(ask)
        return works

    async def what_if(self, free: Mapping[str, int]) -> Plan | None:
        """The plan if so many bytes of each device were free, no engine is asked; None: there is none."""
        ref, looked = self._snapshot.ref, self._snapshot.survey
        if ref is None or looked is None:
            return None
        return await what_if(self._library, self._lessons, ref, self._wishes, looked, free)

    async def _load(
        self,
        ref: ModelRef,
        wishes: Wishes,
        *,
        crash: Crash | None = None,
        note: Note | None = None,
        looked: Survey | None = None,
        leaving: bool = False,
        broken: bool = False,
    ) -> None:
        await self._unload(leaving=leaving or self._engine is not None, broken=broken)
        self._guard.begin(self._snapshot.plan)
        self._phase, self._wishes, self._steps = "loading", wishes, None
        now = time.time()
        self._set(ServingSnapshot(ref=ref, state="starting", since=now, loaded_since=now, replanned=note))

        async def attempt(first: bool) -> Steps:
            return await Load(
                self._library, self._lessons, ref, self._guard.wishes(wishes), start=self._start_engine,
                room=lambda: self._guard.room(self._room()), looked=looked if first else None,
                show=self._show, timed=lambda *news: self._set(timed(self._snapshot, *news)),
            ).run(crash if first else None)  # fmt: skip

        try:
            self._steps = await self._guard.load(ref, attempt, lambda: self._engine)
            if self._hooks is not None and self._engine is not None:
                await self._hooks.started(self._engine, ref)
        finally:
            self._phase = ""
        if self._engine is not None:
            self._engine_changed(self._engine.snapshot)
        self._library.touch(ref.ref)

    async def _start_engine(self, build: Build, launch: Launch) -> None:
        """Start one and wait until it is ready. Nothing of one that failed for lack of memory goes on."""
        ref = self._snapshot.ref
        assert ref is not None
        if self._hooks is not None:
            launch = await self._hooks.prepared(build, launch, ref)

        async def before_start() -> None:
            await prove(self._library, ref, launch)
            if self._engine is not None:
                await self._guard.before_restart(self._engine)

        self._engine = engine = Engine(
            build,
            launch,
            paths=self._library.paths,
            on_change=self._engine_changed,
            ring=self._ring,
            before_start=before_start,
        )
        await engine.start()
        try:
            await engine.wait_ready()
        except EngineFailed as failure:
            if failure.out_of_memory is not None:
                await engine.stop()
            raise

    def _show(self, looked: Survey, plan: Plan | None) -> None:
        lost = self._guard.looked(looked, plan, self._wishes, self._library.settings)
        shown = replace(self._snapshot, survey=looked, lost=lost)
        self._set(shown if plan is None else replace(shown, plan=plan))

    async def _unload(self, *, leaving: bool = False, broken: bool = False) -> None:
        """`leaving`: another plan takes its place, so that it does not look unloaded meanwhile. `broken`: it
        is asked for nothing any more.
        """
        ready = self._engine is not None and self._engine.endpoint is not None and not broken
        self._phase = "leaving" if leaving else "stopping"
        try:
            if ready and self._engine is not None:
                await self._about_to_stop(self._engine)
            if self._engine is not None:
                await self._engine.stop()  # still ours meanwhile: its `stopping` is what others see
                self._engine = None
        finally:
            self._phase = "leaving" if leaving else ""
        current = self._snapshot
        if not leaving and (current.state != "absent" or current.engine or current.error):
            self._set(replace(self._snapshot, state="absent", engine=None, error=None))

    def refuse(self, ref: ModelRef, error: ApplianceError) -> None:
        """It was to be loaded, and nothing of that was begun: the state is `failed` with this error."""
        if self._engine is None and self._snapshot.state != "failed":
            self._set(ServingSnapshot(ref=ref, state="failed", error=error))

    async def _about_to_stop(self, engine: Engine) -> None:
        if self._hooks is not None and self._snapshot.ref is not None:
            if self._phase == "stopping":
                self._set(replace(self._snapshot, state="stopping"))
            await self._hooks.stopping(engine, self._snapshot.ref)

    async def _fail(self, error: ApplianceError) -> None:
        """Nothing of a load that failed goes on running; an engine that gave up keeps its last words."""
        if self._engine is not None and self._engine.snapshot.state != "failed":
            engine, self._engine = self._engine, None
            try:
                await engine.stop()
            except Exception:
                log.exception("an engine did not stop cleanly")  # the owner task must go on
        if isinstance(error, NobodyWaits):
            self._set(replace(self._snapshot, state="absent", engine=None, error=None))
            return
        self._set(replace(self._snapshot, state="failed", error=error))

    def _plans_anew(self, snapshot: EngineSnapshot) -> bool:
        """An engine ran out of memory, or its GPU is lost: another plan takes its place, if there is one."""
        ref, broken = self._snapshot.ref, self._engine
        crash = crash_of(self._snapshot, snapshot, self._steps)
        if ref is None or (crash is None and not self._guard.gave_up):
            return False

        async def again() -> None:
            if self._engine is broken:
                await self._load(ref, self._wishes, crash=crash, leaving=True)

        return self._orders.give_later(again)
