"""The GPUs that engines of this daemon have seen, and what became of them: one table for all models."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from appliance.daemon.machine import losses, returning
from appliance.daemon.machine.losses import Key, Known, Loss
from appliance.engines import Build, CrashReport
from appliance.engines.discovery import asked_again
from appliance.engines.lost_devices import says_lost
from appliance.errors import DeviceLost, EngineFailed
from appliance.hardware import Machine, detect_safely
from appliance.operations.machine.survey import Survey
from appliance.planning import Plan

log = logging.getLogger("appliance.machine")


class Gpus:
    """Belongs to the event loop. Loads tell what they see and what fails."""

    def __init__(
        self,
        *,
        detect: Callable[[], Awaitable[Machine]] = detect_safely,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._detect, self._clock, self._wall = detect, clock, wall
        self._known: dict[Key, Known] = {}

    @property
    def known(self) -> tuple[Known, ...]:
        return tuple(self._known.values())

    def seen(self, looked: Survey) -> Loss | None:
        """A load has looked at the machine: which loss it suffers, if any."""
        self._take(losses.after_look(self._known, looked, self._clock(), self._wall()))
        return losses.felt(self._known, looked)

    def shunned(self) -> frozenset[str]:
        """Names of devices that are listed and of no use: nothing is loaded there now."""
        return losses.shunned(self._known, self._clock())

    def all_shunned(self) -> bool:
        """An engine lists nothing else."""
        shunned = self.shunned()
        engines = {one.key[0] for one in self.known if one.device.name in shunned and one.state == "lost"}
        return bool(engines) and all(one.state == "lost" for one in self.known if one.key[0] in engines)

    def pardon(self) -> None:
        """A person wants a load: it tries everything again."""
        for key, one in self._known.items():
            if one.loss is not None and one.loss.reason == losses.UNUSABLE:
                self._known[key] = replace(one, state="ok", loss=None)

    async def before_restart(self, build: Build, plan: Plan, crash: CrashReport) -> None:
        """An engine crashed and would be started again by the same plan. Raises DeviceLost where that has
        no use: its GPU is gone, or the start after the crash has already failed there.
        """
        loss = await self._missing(build, plan)
        if loss is None and plan.devices and crash.uptime_s is None:
            loss = self._of_no_use(build, plan)
        if loss is not None:
            raise _error(loss)

    async def at_fault(self, build: Build, plan: Plan, failure: EngineFailed) -> bool:
        """Whether a load failed since a GPU of its plan is gone or of no use: one without it may work."""
        if failure.out_of_memory is not None or not plan.devices:
            return False
        if await self._missing(build, plan) is not None:
            return True
        said = (*failure.lines, failure.cause or "")
        suspected = says_lost(said) or any(one.suspect for one in self._used(build, plan))
        return suspected and self._of_no_use(build, plan) is not None

    def worked(self, build: Build, plan: Plan) -> None:
        """A load by this plan is ready."""
        for one in self._used(build, plan):
            self._known[one.key] = replace(one, suspect=False)

    def _used(self, build: Build, plan: Plan) -> list[Known]:
        """The devices of the plan; those made of the CPU are none."""
        names, engine = {device.name for device in plan.devices}, losses.of_engine(build)
        return [one for one in self.known if one.key[0] == engine and one.device.name in names]

    async def _missing(self, build: Build, plan: Plan) -> Loss | None:
        """The first planned device that the engine does not list any more."""
        used = {one.key for one in self._used(build, plan)}
        if not used:
            return None
        mine = {key: one for key, one in self._known.items() if key[0] == losses.of_engine(build)}
        now = await asked_again(build)
        gone = used.difference(losses.keyed(now))
        if not gone:
            return None
        machine = await self._detect()
        self._take(self._known | losses.compare(mine, now, machine, self._clock(), self._wall()))
        return next((one.loss for key, one in self._known.items() if key in gone and one.loss), None)

    def _of_no_use(self, build: Build, plan: Plan) -> Loss | None:
        """Mark the devices of the plan."""
        found = None
        for one in self._used(build, plan):
            lost = losses.unusable(one, self._clock(), self._wall())
            self._take({**self._known, one.key: lost})
            found = found or lost.loss
        return found

    def due(self) -> bool:
        """A lost one should be looked for now."""
        return any(returning.due(one, self._clock()) for one in self._known.values())

    def soon(self) -> None:
        """Something happened to the machine: look now."""
        self._known = {key: returning.soon(one, self._clock()) for key, one in self._known.items()}

    async def look(self) -> tuple[Known, ...]:
        """Look for lost ones, waking none: those that are worth a try."""
        machine = await self._detect()
        now, worth = self._clock(), []
        for key, one in self._known.items():
            if returning.due(one, now):
                self._known[key], try_it = returning.after_glance(one, losses.shows(one, machine), now)
                worth += [self._known[key]] if try_it else []
        return tuple(worth)

    def tried(self, one: Known, works: bool) -> None:
        """After a test load on it."""
        if one.key in self._known:
            self._take({**self._known, one.key: returning.tried(self._known[one.key], works, self._clock())})

    def back(self, key: Key) -> bool:
        """It was lost and can be used again, and who serves without it should know."""
        found = self._known.get(key)
        return found is None or found.state != "lost"

    def settled(self, waiting: Iterable[Key]) -> None:
        """Nobody but these serves without a device: what is back is as ever."""
        keep = set(waiting)
        for key, one in self._known.items():
            if one.state == "back" and key not in keep:
                self._known[key] = replace(one, state="ok", loss=None, looks=0)

    def _take(self, after: dict[Key, Known]) -> None:
        for key, one in after.items():
            before = self._known.get(key)
            if before is None or before.state == one.state:
                continue
            if one.state == "lost" and one.loss is not None:
                log.error("%s %s", one.loss.message, one.loss.fix)
            else:
                log.info("%s is %s", one.device.description, one.state)
        self._known = dict(after)


def _error(loss: Loss) -> DeviceLost:
    return DeviceLost(loss.message, hint=loss.fix)
