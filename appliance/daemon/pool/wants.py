"""What the pool is asked to load, and by whom."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Literal

from appliance.daemon.pool.seat import Seat
from appliance.errors import ApplianceError, EngineUnavailable
from appliance.operations.plans.plan import Wishes

By = Literal["person", "request", "preload", "missed"]
MAX_ASKED = 16


@dataclass(frozen=True, slots=True)
class Barred:
    """Loads that do not begin, since the machine is spared."""

    requests: bool = False
    """Those that requests want."""
    ahead: str = ""
    """Why none is loaded before a request wants it; empty: they are."""


@dataclass(eq=False, slots=True)
class Want:
    """One load that somebody wants."""

    seat: Seat
    by: By
    wishes: Wishes
    done: asyncio.Future[None] | None = None
    """Who asked for it waits here."""
    waits_since: float | None = None
    """Since when others are asked to make way for it."""

    @property
    def evicts(self) -> bool:
        """Others make way for it."""
        return self.by in ("person", "request")

    @property
    def dropped(self) -> bool:
        """Nobody waits for it any more."""
        if self.by == "request":
            return self.seat.wanted == 0
        return self.done is not None and self.done.cancelled() and self.seat.wanted == 0

    def end(self, error: ApplianceError | None) -> None:
        """Tell who asked."""
        if self.done is None or self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class Asked:
    """Loads that persons asked for, and preloads, in their order."""

    def __init__(self) -> None:
        self._wants: deque[Want] = deque()

    def put(self, seat: Seat, by: By, wishes: Wishes) -> asyncio.Future[None]:
        """Raises EngineUnavailable when too many wait."""
        if len(self._wants) >= MAX_ASKED:
            raise EngineUnavailable("Too many commands are waiting for the engines.", hint="Try again.")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_seen)
        self._wants.append(Want(seat, by, wishes, done))
        return done

    def first(self, barred: Barred) -> Want | None:
        """The next one that somebody still waits for. A preload that must not begin is told so."""
        while self._wants and (self._wants[0].dropped or (self._wants[0].by == "preload" and barred.ahead)):
            want = self._wants.popleft()
            want.end(
                EngineUnavailable(
                    f"{want.seat.ref.ref} is not loaded before a request wants it: {barred.ahead}."
                )
            )
        return self._wants[0] if self._wants else None

    def drop(self, want: Want) -> None:
        """It was dealt with."""
        if want in self._wants:
            self._wants.remove(want)

    def clear(self) -> None:
        """Nobody is told anything any more."""
        for want in self._wants:
            if want.done is not None:
                want.done.cancel()
        self._wants.clear()


def _seen(done: asyncio.Future[None]) -> None:
    """What it ended with is in the state, too; nobody else may wait for it."""
    if not done.cancelled():
        done.exception()
