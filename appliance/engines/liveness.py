"""Is a ready engine alive? `/health` does not tell: it answers while the engine decodes nothing at all.

| seen                                                                   | so                           |
|------------------------------------------------------------------------|------------------------------|
| no request is inside                                                   | nothing is asked of it       |
| pieces of replies arrive, or its counters move                         | it lives                     |
| its counters say that no request is inside, though one is held here    | it lives: a client is slow   |
| one request waited longer than `patience_s` without any sign           | it hangs                     |
| many came and went in vain, as long in all                             | it is asked for one token    |
| two in a row ended in an error of its own, or nothing came in time     | it is asked for one token    |
| two in a row could not connect, such as when its socket's file is gone | it is asked for one token    |
| somebody asks (`probe`), such as after a suspend                       | it is asked for one token    |

An idle engine that gave no cause for doubt is never asked: that costs energy, and a slot's prompt cache.
CPU time is no sign: an engine that spins computes, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import aiohttp

from appliance.engines import wire
from appliance.engines.failures import AGAIN
from appliance.engines.leases import SUSPICIOUS, Leases
from appliance.engines.limits import Limits
from appliance.engines.logparse import LoadReader
from appliance.engines.pace import Pace, counts, patience_s
from appliance.engines.values import Endpoint, EngineKind, Launch
from appliance.errors import EngineFailed
from appliance.text import clean_line

_FRESH_S = 1.0
"""A reply that moved so short a time ago proves as much as a token would."""
_DEATH_SHOWS_S = 0.2
_LOOKS = 3
"""Looks in vain, at least, before a verdict."""
_AGAIN = f"{AGAIN} When it happens often: `appliance doctor`, or another engine (--engine)."


class Liveness:
    """Watches one process from the moment at which it is ready."""

    def __init__(
        self,
        kind: EngineKind,
        launch: Launch,
        endpoint: Endpoint,
        *,
        leases: Leases,
        pace: Pace,
        reader: LoadReader,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kind, self._launch, self._endpoint = kind, launch, endpoint
        self._leases, self._pace, self._reader = leases, pace, reader
        self._limits, self._clock = limits, clock
        self._counters: tuple[float, ...] | None = None
        self._probed_at = float("-inf")
        self._looks = 0
        """In a row, in vain."""
        self._probing: asyncio.Task[bool] | None = None
        self._wake = asyncio.Event()
        self._dead: EngineFailed | None = None

    @property
    def patience_s(self) -> float:
        """Seconds of silence after which it hangs."""
        set_by_hand = self._limits.hang_s
        return set_by_hand or patience_s(self._kind, self._launch, self._pace.tokens_per_s)

    async def run(self) -> EngineFailed:
        """Until the engine is found dead; what it died of. Cancel it when the process has ended."""
        self._leases.on_trouble = self._wake.set
        try:
            while self._dead is None:
                await self._next_look()
                if self._doubted():
                    await self.probe()
                elif self._leases.silent_s >= self._limits.quiet_s:
                    await self._judge()
                else:
                    self._looks = 0
            return self._dead
        finally:
            self._leases.on_trouble = lambda: None
            if self._probing is not None:
                self._probing.cancel()
                await asyncio.gather(self._probing, return_exceptions=True)

    async def probe(self) -> bool:
        """Have it make one token, unless a running reply has just shown as much. True when it works.

        Never twice at once: who asks meanwhile gets the same answer.
        """
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._works(), name="engine-probe")
        task = self._probing
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                return False  # the process ended meanwhile
            raise

    async def _next_look(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._limits.quiet_s, self.patience_s / 4)):
                await self._wake.wait()
        self._wake.clear()

    def _doubted(self) -> bool:
        rested = self._clock() - self._probed_at >= self._limits.doubt_s
        return rested and self._leases.troubles >= SUSPICIOUS

    async def _judge(self) -> None:
        """Requests are inside, and nothing was heard for a while."""
        self._looks += 1
        if await self._moves():
            self._looks = 0
            self._leases.sign()
        elif self._looks < _LOOKS:
            return  # the time may have passed while this process stood still itself
        elif counts(self._kind) and self._leases.longest_s >= self.patience_s:
            self._die(*_HANGS, f"For {self._leases.longest_s:.0f} s no reply and no counter of it moved.")
        elif self._leases.silent_s >= self.patience_s:
            await self.probe()

    async def _moves(self) -> bool:
        """Its counters moved since the last look, or it has nothing to do."""
        if not counts(self._kind):
            return False
        async with wire.session(self._endpoint) as client:
            found = await wire.counters(client, self._limits.sign_s)
        if found is None:
            return False
        before, self._counters = self._counters, found.values
        return found.inside == 0 or (before is not None and before != found.values)

    async def _works(self) -> bool:
        """One token within a limit, or a sign of life of another request meanwhile."""
        if self._leases.since_sign_s < _FRESH_S and self._leases.count and not self._leases.troubles:
            return True
        self._probed_at, signs = self._clock(), self._leases.signs
        try:
            async with wire.session(self._endpoint) as client:
                slot = await wire.cheapest_slot(client, self._limits.sign_s) if self._has_slots else None
                limit_s = min(self._limits.probe_s, self.patience_s)
                await wire.probe(client, self._kind, self._launch, limit_s, slot)
        except (ValueError, TimeoutError, OSError, aiohttp.ClientError) as error:
            if self._leases.signs != signs:
                return True
            await asyncio.sleep(_DEATH_SHOWS_S)  # if its process died, that is what ended it
            self._die(*_DEAD, _reason(error))
            return False
        self._leases.troubles = 0
        self._leases.sign()
        return True

    @property
    def _has_slots(self) -> bool:
        return counts(self._kind)

    def _die(self, message: str, hint: str, cause: str) -> None:
        said = self._reader.failure
        place = None
        if said is not None and said.memory is not None:
            place = self._reader.place_of(said, self._launch.plan.devices)
            cause, hint = said.cause, said.hint
        self._dead = EngineFailed(message, cause=cause, hint=hint, out_of_memory=place)
        self._wake.set()


_HANGS = ("The engine hung while serving and was killed.", _AGAIN)
_DEAD = ("The engine stayed up and did not work any more; it was killed.", _AGAIN)


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"It can't be connected to ({error.strerror or 'no reason is known'})."
    return clean_line(str(error) or "no token came in time", 300)
