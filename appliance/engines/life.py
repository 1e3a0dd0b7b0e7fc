"""One process of an engine from its start to its end, as its owner lives it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from appliance.engines import wire
from appliance.engines.failures import exit_text
from appliance.engines.incarnation import Incarnation
from appliance.engines.limits import Limits
from appliance.engines.liveness import Liveness
from appliance.engines.values import EngineKind
from appliance.errors import EngineFailed

KILLED = "killed, since it hung"


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended that nobody had asked to end."""

    error: EngineFailed
    exit: str
    """For the crash report."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What the owner of a process gives to its life, and hears of it."""

    stop: asyncio.Event
    proved: Callable[[], Awaitable[bool]]
    """The model's bytes are the pinned ones; False when it is being stopped meanwhile."""
    ready: Callable[[wire.Props], Liveness]
    lost: Callable[[], None]
    """It serves no more; said at once, before it is known why."""
    served: Callable[[], int | None]
    """Requests since it was ready; None: it never was."""


async def live(life: Incarnation, kind: EngineKind, limits: Limits, owner: Owner) -> Ending | None:
    """Until it ended by itself or had to be ended; None when it was told to stop."""
    exited = asyncio.create_task(life.child.process.wait())
    stopped = asyncio.create_task(owner.stop.wait())
    loading = asyncio.create_task(life.load(kind, limits))
    tasks: list[asyncio.Task[Any]] = [exited, stopped, loading]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            return None
        if loading.done() and life.child.process.returncode is None:
            if isinstance(failed := loading.exception(), EngineFailed):
                return Ending(failed, "ended, since it did not get ready")
            props = loading.result()
            if not await owner.proved():  # nothing was swapped before it opened the file
                return None
            watching = asyncio.create_task(owner.ready(props).run())
            tasks.append(watching)
            await asyncio.wait((exited, stopped, watching), return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done() and not exited.done() and life.child.process.returncode is None:
                owner.lost()
                life.child.kill()  # SIGTERM would wait for the very loop that hangs
                return Ending(watching.result(), KILLED)
        return None if stopped.done() else await _ended(life, owner)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ended(life: Incarnation, owner: Owner) -> Ending:
    """Why it ended by itself."""
    requests = owner.served()
    if requests is not None:
        owner.lost()  # nobody shall send a request to it any more
    message, why = await life.last_words(requests)
    error = EngineFailed(message, cause=why.cause, hint=why.hint, out_of_memory=why.memory)
    return Ending(error, exit_text(life.child.process.returncode))
