"""Keeps the machine awake while inference requests are here: `governor.keep_awake`.

One task takes and releases the hold, and owns what is behind it. A loaded model without requests holds
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from appliance.daemon.machine import inhibitors
from appliance.daemon.machine.demand import Demand, Pace
from appliance.daemon.machine.inhibitors import Hold, Inhibitor, NotHeld

log = logging.getLogger("appliance.machine")

LONG_S = 600.0
"""So long nothing is tried where the system offers nothing or says no, unless the settings change."""
FIRST_S, MOST_S = 1.0, 60.0
"""After a hold that was lost, or a try that may work the next time: doubled from one to the other."""
TRIES = 6
"""So many in a row; then `LONG_S`."""


@dataclass(frozen=True, slots=True)
class AwakeView:
    """As the status shows it."""

    on: bool
    """The setting."""
    held: bool = False
    how: str | None = None
    why_not: str | None = None
    """Why it is not held though it should be, or what the hold leaves out."""


class KeepAwake:
    """`start` and `stop` once each, from the event loop; `count` and `use` at any time from there."""

    def __init__(
        self,
        on: bool,
        *,
        make: Callable[[], Inhibitor] = inhibitors.inhibitor,
        pace: Pace | None = None,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self._make, self._on_change = make, on_change
        self._demand = Demand(pace or Pace())
        self._inhibitor = make()
        self._hold: Hold | None = None
        self._lost: asyncio.Task[str] | None = None
        self._taken_at = 0.0
        self._fails = 0
        self._not_before = float("-inf")
        self._view = AwakeView(on)
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def view(self) -> AwakeView:
        return self._view

    def count(self, requests: int) -> None:
        """So many inference requests are here now, running or waiting, answered here or elsewhere."""
        before = self._demand.running
        self._demand.count(requests, time.monotonic())
        if not before or not requests:
            self._woken.set()

    def use(self, on: bool) -> None:
        """The settings changed: what was refused before is tried again."""
        self._inhibitor = self._make()
        self._fails, self._not_before = 0, float("-inf")
        self._show(AwakeView(on, self._view.held, self._view.how, self._hold.but if self._hold else None))
        self._woken.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="keep awake")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                self._woken.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(await self._step()):
                        await self._woken.wait()
        finally:
            await self._release()

    async def _step(self) -> float | None:
        """Do what is due; in how many seconds the next is. None: when something happens."""
        if self._lost is not None and self._lost.done():
            await self._give_up(self._lost.result())
        now = time.monotonic()
        if not self._wanted(now):
            await self._release()
        elif self._hold is None and now >= self._not_before:
            await self._take()
        now = time.monotonic()
        if self._hold is None and self._wanted(now):
            return max(0.0, self._not_before - now)
        return self._demand.due(now, held=self._hold is not None) if self._view.on else None

    def _wanted(self, now: float) -> bool:
        return self._view.on and self._demand.wanted(now, held=self._hold is not None)

    async def _take(self) -> None:
        asked = self._inhibitor
        try:
            hold = await asked.take()
        except NotHeld as problem:
            if asked is self._inhibitor:  # else the settings have changed meanwhile: it is tried again now
                self._failed(problem.why, lasting=problem.lasting)
            return
        except Exception as error:
            log.exception("the machine could not be kept awake")
            self._failed(f"{type(error).__name__}: {error}", lasting=True)
            return
        self._hold, self._taken_at = hold, time.monotonic()
        self._lost = asyncio.create_task(hold.lost())
        self._lost.add_done_callback(lambda _: self._woken.set())
        log.info("the machine is kept awake: %s", hold.how)
        self._show(AwakeView(self._view.on, True, hold.how, hold.but))

    async def _release(self) -> None:
        """The requests are over, or it was switched off."""
        if self._hold is None:
            return
        await self._let_go()
        self._fails = 0
        log.info("the machine may sleep")
        self._show(AwakeView(self._view.on))

    async def _give_up(self, why: str) -> None:
        """It ended by itself."""
        if time.monotonic() - self._taken_at > MOST_S:
            self._fails = 0
        await self._let_go()
        self._failed(why, lasting=False)

    async def _let_go(self) -> None:
        lost, hold = self._lost, self._hold
        if lost is not None:
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)
        if hold is not None:
            await hold.release()
        self._lost = self._hold = None

    def _failed(self, why: str, *, lasting: bool) -> None:
        self._fails += 1
        long = lasting or self._fails >= TRIES
        self._not_before = time.monotonic() + (
            LONG_S if long else min(MOST_S, FIRST_S * 2.0 ** (self._fails - 1))
        )
        if long:
            self._fails = 0
        if why != self._view.why_not:
            log.warning("the machine may fall asleep during requests: %s", why)
        self._show(AwakeView(self._view.on, why_not=why))

    def _show(self, view: AwakeView) -> None:
        if view != self._view:
            self._view = view
            self._on_change()
