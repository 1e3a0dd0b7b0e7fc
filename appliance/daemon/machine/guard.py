"""Beside one model's engine: what it does without since a GPU was lost, and the way out when that happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from appliance.catalog import ModelRef
from appliance.daemon.machine.gpus import Gpus
from appliance.daemon.machine.losses import Loss
from appliance.daemon.room import Room
from appliance.engines import Engine
from appliance.errors import DeviceLost, DoesNotFit, EngineFailed, NoEngine, OutOfMemory
from appliance.operations.machine.survey import Survey
from appliance.operations.plans.wishes import Wishes, request_for
from appliance.planning import Plan
from appliance.planning.stepdown import given_up
from appliance.settings import Settings

T = TypeVar("T")


class Guard:
    """One for each model; all of them share the table of GPUs."""

    def __init__(self, gpus: Gpus | None = None) -> None:
        self._gpus = gpus or Gpus()
        self._before: Plan | None = None
        """The last plan that nothing was missing for."""
        self._loss: Loss | None = None
        self.gave_up = False
        """The engine was not started again, since its GPU is lost: it must be planned anew."""

    def begin(self, before: Plan | None) -> None:
        """A load begins; `before` is the plan that was in force."""
        if self._loss is None and before is not None:
            self._before = before
        self._loss, self.gave_up = None, False

    def room(self, room: Room) -> Room:
        """The same without devices that are of no use now."""
        return replace(room, shunned=self._gpus.shunned())

    def wishes(self, wishes: Wishes) -> Wishes:
        """The same on the CPU, when nothing else is left: that plans as if there were no GPU."""
        return replace(wishes, gpu_layers=0) if self._gpus.all_shunned() else wishes

    def looked(self, looked: Survey, plan: Plan | None, wishes: Wishes, settings: Settings) -> Loss | None:
        """What the load does without; nothing, where nobody wants it on a GPU."""
        loss = self._gpus.seen(looked)
        if request_for(settings, wishes).gpu_layers == 0:
            loss = None
        if loss is not None and plan is not None:
            on_less = ("cpu_fallback",) if plan.gpu_layers == 0 else ()
            codes = on_less if self._before is None else given_up(self._before, plan)
            loss = replace(loss, codes=codes)
        self._loss = loss
        return loss

    async def before_restart(self, engine: Engine) -> None:
        """Before each process: after a crash, its GPU must still be there. Raises DeviceLost."""
        crash = engine.snapshot.crash
        if crash is None or engine.snapshot.state != "starting":
            return
        try:
            await self._gpus.before_restart(engine.build, engine.launch.plan, crash)
        except DeviceLost:
            self.gave_up = True
            raise

    async def load(
        self,
        ref: ModelRef,
        attempt: Callable[[bool], Awaitable[T]],
        engine: Callable[[], Engine | None],
    ) -> T:
        """Load by `attempt`; once more when that failed for a GPU that is gone or of no use: without it.

        `attempt` is told whether it is the first. When not even that works, the error is the loss alone.
        """
        try:
            done = await self._twice(attempt, engine)
        except (DoesNotFit, OutOfMemory, NoEngine) as error:
            if self._loss is None:
                raise
            cause = f"Without it, {ref.ref} is not served: {error.message}"
            raise DeviceLost(self._loss.message, cause=cause, hint=self._loss.fix) from None
        if (ready := engine()) is not None:
            self._gpus.worked(ready.build, ready.launch.plan)
        return done

    async def _twice(self, attempt: Callable[[bool], Awaitable[T]], engine: Callable[[], Engine | None]) -> T:
        try:
            return await attempt(True)
        except EngineFailed as failure:
            if not await self._at_fault(engine(), failure):
                raise
        return await attempt(False)

    async def _at_fault(self, broken: Engine | None, failure: EngineFailed) -> bool:
        """Whether its GPU is why it failed; then nothing of it is left."""
        if broken is None or not await self._gpus.at_fault(broken.build, broken.launch.plan, failure):
            return False
        await broken.stop()
        return True

    def pardon(self) -> None:
        """A person wants it: everything is tried again."""
        self._gpus.pardon()
