"""The task that notices a suspend, looks for lost GPUs, and brings models back to them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from appliance.daemon.machine import losses, sleep
from appliance.daemon.machine.gpus import Gpus
from appliance.daemon.machine.losses import Known, Loss
from appliance.daemon.machine.sleep import Clocks
from appliance.daemon.pool import Pool, Seat
from appliance.engines.builds.testload import try_build
from appliance.engines.discovery import asked_again
from appliance.errors import ApplianceError, DeviceLost
from appliance.operations.machine.survey import Note
from appliance.paths import Paths
from appliance.units import duration

log = logging.getLogger("appliance.machine")

EVERY_S = 2.0
PROVE_S = 60.0
"""For one token of an idle engine after a suspend; its memory may have to be read back from the disk."""
IDLE_S = 10.0
"""So long a model is idle before it goes back to its GPU."""


class MachineWatch:
    """`start` and `stop` once each, from the event loop."""

    def __init__(
        self,
        pool: Pool,
        gpus: Gpus,
        paths: Paths,
        *,
        clocks: Callable[[], Clocks] = sleep.read,
        every_s: float = EVERY_S,
        prove_s: float = PROVE_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._pool, self._gpus, self._paths = pool, gpus, paths
        self._clocks = clocks
        self._every_s, self._prove_s, self._idle_s = every_s, prove_s, idle_s
        self._moved: dict[str, float] = {}
        """When each model was brought back last."""
        self._last = clocks()
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    def start(self) -> None:
        self._last = self._clocks()
        self._task = asyncio.create_task(self._run(), name="machine")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._stop.wait()
            try:
                await self.look()
            except Exception:
                log.exception("the machine could not be looked at")  # the next look may work

    async def look(self) -> None:
        """One look."""
        before, self._last = self._last, self._clocks()
        slept_s = sleep.slept_s(before, self._last, self._every_s)
        if slept_s:
            await self.resumed(slept_s)
        if self._gpus.due():
            for one in await self._gpus.look():
                await self._try(one)
        await self._bring_back()

    async def resumed(self, slept_s: float) -> None:
        """After a suspend: every engine proves that it works, and lost GPUs are looked for at once."""
        log.info("the machine was suspended for %s; the engines are asked for a sign", duration(slept_s))
        self._gpus.soon()
        note = Note(
            "resumed",
            f"After the machine was suspended for {duration(slept_s)}, the engine did not work any more: "
            "it was started again.",
            "If that happens each time, look for messages of the GPU's driver in the system log.",
            time.time(),
        )
        await asyncio.gather(*(_told(seat, seat.serving.prove(note, self._prove_s)) for seat in self._pool))

    async def _try(self, one: Known) -> None:
        """Load a tiny model on it: being listed is no proof."""
        build = await asked_again(one.build)
        device = losses.keyed(build).get(one.key)
        works = device is not None and (await try_build(build, self._paths, device=device)).ok
        self._gpus.tried(one, works)

    async def _bring_back(self) -> None:
        """Models whose GPU is back go there, one after the other, when they are idle."""
        waiting = []
        for seat in self._pool:
            lost = seat.serving.snapshot.lost
            if lost is None:
                continue
            if not self._gpus.back(lost.key) or not await self._brought(seat, lost):
                waiting.append(lost.key)
        self._gpus.settled(waiting)

    async def _brought(self, seat: Seat, lost: Loss) -> bool:
        """Whether it need not wait any more."""
        current, now = seat.serving.snapshot, time.monotonic()
        rested = now - self._moved.get(seat.ref.ref, float("-inf")) >= losses.TRY_EVERY_S
        if current.state == "failed" and isinstance(current.error, DeviceLost) and rested:
            self._moved[seat.ref.ref] = now
            await _told(seat, self._pool.load_again(seat.ref.ref))
            return True
        if current.state not in ("ready", "busy"):
            return current.state in ("absent", "failed")
        if not rested or not self._idle(seat, now):
            return False
        note = Note("gpu_back", f"{lost.title} is back: the model was loaded there again.", None, time.time())
        self._moved[seat.ref.ref] = now
        await _told(seat, seat.serving.replan(note, lambda: seat.wanted == 0))
        return True

    def _idle(self, seat: Seat, now: float) -> bool:
        return seat.wanted == 0 and seat.idle_since is not None and now - seat.idle_since >= self._idle_s


async def _told(seat: Seat, work: Awaitable[object]) -> None:
    """What goes wrong is in the model's state, too."""
    try:
        await work
    except ApplianceError as error:
        log.error("%s: %s", seat.ref.ref, error.message)
