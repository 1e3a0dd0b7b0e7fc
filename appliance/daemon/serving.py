"""The one model that is served: which engine runs it, by which plan, and what became of it.

| state      | meaning                                                             |
| ---------- | ------------------------------------------------------------------- |
| `absent`   | no model, or unloaded                                               |
| `starting` | files checked, header read, plan made; an engine makes way for another plan |
| `loading`, `ready`, `busy`, `stopping`, `failed` | what the engine's own task says       |

Commands (`load`, `unload`, `restart`, `replan`) are carried out one after the other by one task, so two
callers can't start two engines. Everyone else reads `snapshot`.

An engine that makes way for another plan of the same model (it ran out of memory, or `replan`) is `starting`
to others from then on, never `failed` or `stopping`: requests wait, as in any load.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from appliance.catalog import ModelRef
from appliance.daemon.hooks import Hooks, NobodyWaits
from appliance.daemon.launching import prove
from appliance.daemon.loading import Crash, Load, Steps, begun_anew
from appliance.daemon.orders import Orders
from appliance.daemon.room import Room
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.sketching import what_if
from appliance.engines import Build, Endpoint, Engine, EngineSnapshot, Launch, LogLine, LogRing
from appliance.errors import ApplianceError, EngineFailed, ModelMissing, NotVerified
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Note, Survey
from appliance.operations.models import Library
from appliance.operations.plans.plan import Wishes
from appliance.planning import Plan

log = logging.getLogger("appliance.serving")
STEADY_S = 600.0
"""A plan that served this long was not too large from the start: the count of smaller ones begins anew."""


class Serving:
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
    ) -> None:
        """`room` says what the other resident engines leave to this one; `ring` takes its log."""
        self._library = library
        self._room, self._hooks = room, hooks
        self._lessons = lessons or Lessons(library.paths.learned)
        self._on_change = on_change
        self._snapshot = ServingSnapshot(since=time.time())
        self._engine: Engine | None = None
        self._ring = ring or LogRing()
        self._wishes = Wishes()
        self._steps: Steps | None = None
        """Of the load that the engine comes from."""
        self._phase: Literal["", "leaving", "loading", "stopping"] = ""
        """An engine makes way for another plan; a load is at work; an engine is about to be stopped."""
        self._orders = Orders(self._fail)

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
        """Where to send a request; None unless the engine is ready, and stays."""
        return self._engine.endpoint if self._engine is not None and not self._phase else None

    def use(self, library: Library) -> None:
        """Take over changed settings; they act at the next load."""
        self._library = library

    def start(self) -> None:
        self._orders.start()

    async def stop(self) -> None:
        """Stop the engine and the owner task."""
        await self._orders.stop()
        await self._unload()

    async def load(
        self, ref: ModelRef, wishes: Wishes | None = None, *, looked: Survey | None = None
    ) -> None:
        """Serve this model; the engine before is stopped first. Raises what loading ended with.

        `looked`: a look at the machine of this moment, which need not be repeated.
        """
        await self._orders.give(lambda: self._load(ref, wishes or Wishes(), looked=looked))

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
        await self._orders.give(lambda: self._load(ref, self._wishes))

    async def replan(self, note: Note, still: Callable[[], bool]) -> bool:
        """Load the same model again with what is free now, because of what `note` says; requests wait.

        Only when `still` holds in the moment in which it begins, and the engine has no request. Returns
        whether it was done. Raises what loading ended with.
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

    async def what_if(self, free: Mapping[str, int]) -> Plan | None:
        """The plan of the served model if so many bytes of each device were free; no engine is asked.

        None when it can't be made.
        """
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
    ) -> None:
        await self._unload(leaving=crash is not None or note is not None)
        self._phase, self._wishes, self._steps = "loading", wishes, None
        now = time.time()
        self._set(ServingSnapshot(ref=ref, state="starting", since=now, loaded_since=now, replanned=note))
        load = Load(
            self._library, self._lessons, ref, wishes,
            start=self._start_engine, show=self._show, room=self._room, looked=looked,
        )  # fmt: skip
        try:
            self._steps = await load.run(crash)
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

        self._engine = engine = Engine(
            build,
            launch,
            paths=self._library.paths,
            on_change=self._engine_changed,
            ring=self._ring,
            before_start=lambda: prove(self._library, ref, launch),
        )
        await engine.start()
        try:
            await engine.wait_ready()
        except EngineFailed as failure:
            if failure.out_of_memory is not None:
                await engine.stop()
            raise

    def _show(self, looked: Survey, plan: Plan | None) -> None:
        shown = replace(self._snapshot, survey=looked)
        self._set(shown if plan is None else replace(shown, plan=plan))

    async def _unload(self, *, leaving: bool = False) -> None:
        """`leaving`: another plan takes its place, so that it does not look unloaded meanwhile."""
        ready = self.endpoint is not None
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

    def _engine_changed(self, snapshot: EngineSnapshot) -> None:
        if self._engine is None:
            return
        if snapshot.state == "failed" and not self._phase and self._plans_smaller(snapshot):
            self._phase = "leaving"
        ended = snapshot.state in ("failed", "stopping", "absent")
        goes_on = self._phase == "leaving" or (self._phase == "loading" and ended)
        state = "starting" if goes_on else snapshot.state
        if self._phase == "loading" and state in ("ready", "busy"):
            state = "loading"  # what it had in its caches is still being brought back
        self._set(replace(self._snapshot, state=state, engine=snapshot))

    def _plans_smaller(self, snapshot: EngineSnapshot) -> bool:
        """An engine ran out of memory while it served: a smaller plan takes its place, when there is one."""
        ref, plan, looked = self._snapshot.ref, self._snapshot.plan, self._snapshot.survey
        steps = self._steps
        if snapshot.out_of_memory is None or ref is None or plan is None or looked is None or steps is None:
            return False
        failure = EngineFailed(
            snapshot.error or "The engine ran out of memory.",
            cause=snapshot.cause,
            hint=snapshot.hint,
            lines=snapshot.last_lines,
            out_of_memory=snapshot.out_of_memory,
        )
        steady = snapshot.ready_at is not None and time.time() - snapshot.ready_at > STEADY_S
        crash = Crash(plan, begun_anew(steps) if steady else steps, failure, looked.build())
        broken = self._engine

        async def again() -> None:
            if self._engine is broken:
                await self._load(ref, self._wishes, crash=crash)

        return self._orders.give_later(again)

    def _set(self, snapshot: ServingSnapshot) -> None:
        changed = snapshot.state != self._snapshot.state
        self._snapshot = replace(snapshot, since=time.time() if changed else self._snapshot.since)
        self._on_change(self._snapshot)
