"""After a load: what it taught is noted down, and while it is idle, its memory is watched.

Its plan is held against what is free, which other programs may have taken; and what it holds against its
plan, which it may have outgrown.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from appliance.daemon import replanning
from appliance.daemon.driver_memory import views_by_device
from appliance.daemon.machine import drift
from appliance.daemon.replanning import DeviceNow, Memory, Pressure
from appliance.daemon.resident import Resident
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.serving import Serving
from appliance.errors import ApplianceError
from appliance.monitor import GpuView, MonitorSnapshot
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.memory import whole_private_ram
from appliance.operations.machine.survey import Note
from appliance.planning import HOST, Plan
from appliance.units import size

log = logging.getLogger("appliance.serving")

LOOK_EVERY_S = 2.0
SETTLED_S = 16.0
"""The sensors read the processes every 10 s and send every 5 s: then a figure is of the loaded engine."""
DRIVER_TELLS_S = 40.0
"""The driver's figure is waited for no longer than this."""
Beside = frozenset[tuple[int, bool]]
"""The other engines of ours: pid, and whether it is loaded."""


def beside(everyone: Iterable[Resident], mine: Resident) -> Beside:
    """The other engines that run now."""
    found = (one.snapshot for one in everyone if one is not mine)
    return frozenset(
        (one.engine.pid, one.state in ("ready", "busy"))
        for one in found
        if one.engine is not None and one.engine.pid is not None
    )


class PlanWatch:
    """Looks at the loaded engine from time to time. `start` and `stop` once each, from the event loop."""

    def __init__(
        self,
        serving: Serving,
        lessons: Lessons,
        *,
        monitor: Callable[[], MonitorSnapshot],
        quiet: Callable[[], bool],
        others: Callable[[], Beside] = frozenset,
        ram: Callable[[int], int | None] = whole_private_ram,
        every_s: float = LOOK_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`quiet` says whether no request runs or waits. `ram`: bytes that are a process's alone."""
        self._serving, self._lessons = serving, lessons
        self._monitor, self._quiet, self._others, self._ram = monitor, quiet, others, ram
        self._every_s, self._clock = every_s, clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._engine: tuple[int | None, float | None] = (None, None)
        """pid and start of the engine that the rest is about."""
        self._since = 0.0
        self._noted = False
        self._memory = Memory()
        self._beside: Beside = frozenset()
        self._changed_at = float("-inf")
        """When another engine of ours came or went."""
        self._drift = drift.Memory()
        self._served = 0
        """Times that it became busy."""
        self._idle_since: float | None = None
        self._weighed_at = float("-inf")

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="plan-watch")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def changed(self) -> None:
        """The served model changed: look now."""
        if self._serving.snapshot.state == "busy":
            self._served += self._idle_since is not None
            self._idle_since = None
            self._drift = drift.used(self._drift)
        elif self._serving.snapshot.state == "ready" and self._idle_since is None:
            self._idle_since = self._clock()
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except ApplianceError as error:
                log.error("the plan could not be made anew: %s", error.message)
            except Exception:
                log.exception("the plan could not be looked at")  # the next look may work
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()

    async def look(self) -> None:
        """One look."""
        current = self._serving.snapshot
        engine, plan = current.engine, current.plan
        if engine is None or plan is None or current.survey is None or current.state not in ("ready", "busy"):
            return
        if (engine.pid, engine.started_at) != self._engine:
            self._begin((engine.pid, engine.started_at))
        heat = self._monitor()
        fresh = heat.active and not heat.stale and heat.age_s is not None
        views = views_by_device(current.survey, heat.gpus if fresh else ())
        await self._note(current, plan, views)
        pressed = self._judge(plan, views)
        if pressed is not None:
            await self._relieve(plan, pressed, views)
        elif engine.pid is not None:
            await self._weigh(plan, engine.pid, views)

    def _begin(self, engine: tuple[int | None, float | None]) -> None:
        """Another engine runs now."""
        self._engine, self._since, self._noted = engine, self._clock(), False
        self._memory, self._drift = replanning.loaded(self._memory), drift.loaded(self._drift)
        self._served, self._idle_since = 0, self._clock() if self._idle() else None

    async def _note(self, current: ServingSnapshot, plan: Plan, views: Mapping[str, GpuView]) -> None:
        """Once per engine: as soon as the driver has told what its process holds, or will not tell."""
        if self._noted or current.ref is None or current.engine is None:
            return
        used = {name: self._mine(view) for name, view in views.items()}
        told = {name: n_bytes for name, n_bytes in used.items() if n_bytes is not None}
        age = self._clock() - self._since
        asked = bool(plan.devices) and self._tells(current)
        missing = any(device.name not in told for device in plan.devices)
        if asked and (age < SETTLED_S or (missing and age < DRIVER_TELLS_S)):
            return
        self._noted = True
        sha256, build, buffers = current.ref.variant.main.sha256, current.engine.build, current.engine.buffers
        path = current.survey.build().path if current.survey is not None else None
        await asyncio.to_thread(self._lessons.note_load, sha256, build, plan, buffers, told, path=path)

    def _tells(self, current: ServingSnapshot) -> bool:
        """Some driver is asked at all: there is a GPU that the sensors read."""
        return current.survey is not None and bool(current.survey.machine.gpus)

    def _mine(self, view: GpuView) -> int | None:
        """Bytes of this engine alone."""
        alone = dict(view.engines).get(self._engine[0] or 0)
        return alone if alone is not None or self._others() else view.used_by_engine

    def _judge(self, plan: Plan, views: Mapping[str, GpuView]) -> Pressure | None:
        """While an engine of ours comes or goes, the figures are of no use: who holds what is read slowly."""
        others, now = self._others(), self._clock()
        if others != self._beside:
            self._beside, self._changed_at = others, now
            self._memory = replanning.rebased(self._memory)
        on_their_way = any(not loaded for _, loaded in others)
        if on_their_way or now - self._changed_at < SETTLED_S:
            return None
        seen = {
            name: DeviceNow(view.free, view.used_by_engine)
            for name, view in views.items()
            if not others or view.used_by_engine is not None  # else it may be the others who took it
        }
        self._memory, pressed = replanning.step(plan, seen, self._idle(), now, self._memory)
        return pressed

    def _idle(self) -> bool:
        return self._serving.snapshot.state == "ready" and self._quiet()

    async def _relieve(self, plan: Plan, pressed: Pressure, views: Mapping[str, GpuView]) -> None:
        """Load again when a plan for what is free now would leave more room."""
        free = {
            name: view.free + self._held(plan, name, view)
            for name, view in views.items()
            if view.free is not None
        }
        smaller = await self._serving.what_if(free)
        if smaller is None or not replanning.is_better(plan, smaller, pressed.device):
            return
        note = Note(
            "replanned",
            f"Other programs took {size(pressed.taken)} of {pressed.device}, {size(pressed.free)} were left: "
            "the model was loaded again with a smaller plan.",
            "Close them; the next load plans with what is free then.",
            time.time(),
        )
        if await self._serving.replan(note, self._idle):
            self._memory = replanning.reloaded(self._memory, self._clock())

    def _held(self, plan: Plan, name: str, view: GpuView) -> int:
        """Bytes that our engine gives back: by the driver, else as planned."""
        mine = self._mine(view)
        if mine is not None:
            return mine
        return sum(device.needed for device in plan.devices if device.name == name)

    async def _weigh(self, plan: Plan, pid: int, views: Mapping[str, GpuView]) -> None:
        """An idle engine that holds much more than it should is started afresh."""
        now, engine = self._clock(), self._serving.engine
        rested = self._idle_since is not None and now - self._idle_since >= drift.IDLE_S
        due = now - self._weighed_at >= drift.LOOK_EVERY_S and self._served >= drift.FIRST_REQUESTS
        if not (rested and due and self._idle()) or engine is None:
            return
        self._weighed_at = now
        held = {HOST: await asyncio.to_thread(self._ram, pid)}
        held |= {name: self._mine(view) for name, view in views.items()}
        spare = drift.spare_of(engine.launch.cache_ram_mib)
        self._drift, found = drift.look(plan, held, spare, now, self._drift)
        if found is not None and await self._serving.replan(_recycled(found), self._idle):
            self._drift = drift.recycled(self._drift, self._clock())


def _recycled(found: drift.Drift) -> Note:
    place = "RAM" if found.place == HOST else found.place
    return Note(
        "recycled",
        f"The idle engine held {size(found.now)} of {place}, {size(found.due)} were due: "
        "it was started afresh.",
        None,
        time.time(),
    )
