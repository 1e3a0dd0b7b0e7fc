"""What a finished local reply tells about this machine: how it was, and how fast its memory is read."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from statistics import median

from appliance.gateway.ports import Conditions, Outcome
from appliance.monitor import MonitorSnapshot, Pressure
from appliance.operations.lessons.speeds import plan_key
from appliance.planning import HOST, Plan
from appliance.planning.speed.reads import between
from appliance.planning.speed.rule import place_of

log = logging.getLogger("appliance.speeds")

ENOUGH_TOKENS = 32
"""Tokens of a reply that teaches a bandwidth."""
TOGETHER = 3
"""Replies whose median is handed on: one slow reply is an accident."""


def conditions_of(heat: Pressure, seen: MonitorSnapshot, plan: Plan | None) -> Conditions:
    """The machine now, with its heat as it counts for the model; what could not be read is None."""
    return Conditions(
        thermal=None if heat.thermal == "unknown" else heat.thermal,
        power=None if seen.power == "unknown" else seen.power,
        plan=None if plan is None else plan_key(plan),
    )


class BandwidthLearner:
    """Turns speeds into bandwidths, and hands on the median of a few. Lives in the event loop.

    `note(build, place, bytes_per_s)` writes a file: it runs in a thread, one call at a time.
    """

    def __init__(self, note: Callable[[str, str, float], None]) -> None:
        self._note = note
        self._found: deque[float] = deque(maxlen=TOGETHER)
        self._of: tuple[str, str] | None = None
        self._writing: asyncio.Task[None] | None = None

    def learn(self, plan: Plan, outcome: Outcome, now: Conditions) -> None:
        """Take one finished reply; most teach nothing.

        Only one that had the engine to itself, on a cool machine (or one whose heat is unknown) on mains
        power, whose weights are all but at one place. A draft model makes speeds that no memory has.
        """
        speed = outcome.tokens_per_second
        alone = outcome.ok and outcome.streams == 1 and (outcome.tokens_out or 0) >= ENOUGH_TOKENS
        well = now.power == "ac" and now.thermal in (None, "cool")
        if not alone or not well or speed is None or plan.draft is not None or plan.engine_build is None:
            return
        # while the reply was made its context grew: half of it stands for all
        filled = (outcome.tokens_in or 0) + (outcome.tokens_out or 0) / 2
        reads = between(plan.reads, plan.reads_full, filled / plan.ctx)
        meant = place_of(reads, speed)
        if meant is None:
            return
        names = [device.name for device in plan.devices]
        place = names[meant[0]] if meant[0] < len(names) else HOST
        self._take((plan.engine_build, place), meant[1])

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def _take(self, of: tuple[str, str], bytes_per_s: float) -> None:
        if of != self._of:
            self._of = of
            self._found.clear()
        self._found.append(bytes_per_s)
        busy = self._writing is not None and not self._writing.done()
        if len(self._found) == TOGETHER and not busy:
            self._writing = asyncio.create_task(self._write(*of, median(self._found)))
            self._found.clear()

    async def _write(self, build: str, place: str, bytes_per_s: float) -> None:
        try:
            await asyncio.to_thread(self._note, build, place, bytes_per_s)
        except Exception:
            log.exception("the speed of %s could not be kept", place)  # a reply must not fail for it
