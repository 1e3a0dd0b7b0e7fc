"""Orders for one owner: carried out one after the other, by one task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from appliance.errors import ApplianceError, EngineUnavailable

log = logging.getLogger("appliance.serving")
MAX_WAITING = 8
Work = Callable[[], Awaitable[None]]


class Orders:
    """A short queue of work. `on_failure` is awaited before the giver of an order is told what went wrong."""

    def __init__(self, on_failure: Callable[[ApplianceError], Awaitable[None]]) -> None:
        self._on_failure = on_failure
        self._waiting: asyncio.Queue[tuple[Work, asyncio.Future[None]]] = asyncio.Queue(MAX_WAITING)
        self._owner: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None
        self._abandoned: ApplianceError | None = None

    def start(self) -> None:
        self._owner = asyncio.create_task(self._run(), name="serving")

    async def stop(self) -> None:
        """End the order at work and forget the others."""
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.gather(self._owner, return_exceptions=True)
        while not self._waiting.empty():
            self._waiting.get_nowait()[1].cancel()

    def abandon(self, why: ApplianceError) -> None:
        """Give up the order at work, if there is one: it ends with `why`. Those that wait are carried out."""
        if self._work is not None and not self._work.done():
            self._abandoned = why
            self._work.cancel()

    async def give(self, work: Work) -> None:
        """Have it carried out, and wait for it.

        Raises what it ended with, and EngineUnavailable when too many wait.
        """
        await self._put(work)

    def give_later(self, work: Work) -> bool:
        """Have it carried out; nobody waits for it. False when too many wait."""
        with contextlib.suppress(EngineUnavailable):
            self._put(work).add_done_callback(_seen)
            return True
        return False

    def _put(self, work: Work) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._waiting.put_nowait((work, done))
        except asyncio.QueueFull:
            raise EngineUnavailable(
                "Too many commands are waiting for the engine.", hint="Try again."
            ) from None
        return done

    async def _run(self) -> None:
        while True:
            work, done = await self._waiting.get()
            if done.cancelled():
                continue  # nobody waits for it any more, so nothing is loaded for nobody
            try:
                await self._carry_out(work)
            except ApplianceError as error:
                await self._failed(error, done)
            except Exception as error:
                log.exception("loading failed unexpectedly")
                await self._failed(
                    ApplianceError("The model can't be loaded.", cause=type(error).__name__), done
                )
            else:
                if not done.cancelled():
                    done.set_result(None)
            finally:
                if not done.done():
                    done.cancel()  # this task is being ended: nobody waits for ever

    async def _carry_out(self, work: Work) -> None:
        """As a task of its own, which `abandon` can end without ending the owner."""
        self._work = asyncio.ensure_future(work())
        try:
            await self._work
        except asyncio.CancelledError:
            why, self._abandoned = self._abandoned, None
            if why is None:
                self._work.cancel()  # the owner itself is being ended
                await asyncio.gather(self._work, return_exceptions=True)
                raise
            raise why from None
        finally:
            self._work, self._abandoned = None, None

    async def _failed(self, error: ApplianceError, done: asyncio.Future[None]) -> None:
        await self._on_failure(error)
        if not done.cancelled():
            done.set_exception(error)


def _seen(done: asyncio.Future[None]) -> None:
    """What it ended with is in the state; nobody else waits for it."""
    if not done.cancelled():
        done.exception()
