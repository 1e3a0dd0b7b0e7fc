"""The flight recorder: what the monitor sees and the router decides, handed to the journal in batches.

Whoever tells it something waits for nothing: values are kept as they are,
and made into rows by the next batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from appliance.daemon.points import Load, points_of
from appliance.journal import Journal
from appliance.journal.timeline import Decided, Moment, Point
from appliance.monitor import MonitorSnapshot
from appliance.routing import Decision, Features, View
from appliance.text import clean_line

log = logging.getLogger("appliance.daemon")

BATCH_S = 10.0
MOST_POINTS, MOST_DECISIONS = 2_000, 5_000
"""That wait for a batch; further ones are counted as lost."""
_PACE_S = 0.9
"""At least so far apart, whatever the sensors' pace."""
_SET_BACK_S = 2.0
"""The clock moved back by more than this was set; by less, samples wait until it has caught up."""
_LONGEST_CAUSE = 300
"""As `routing.after_failure` cuts it."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A decision as it was told."""

    at: float
    request_id: str
    features: Features
    view: View
    decision: Decision
    moment: Moment
    given: Mapping[str, Any]
    cause: str


class Recorder:
    """`on_sample` is the monitor's listener, `decided` the gateway's. Lives in the event loop."""

    def __init__(
        self,
        journal: Journal,
        load: Callable[[], Load] = Load,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal, self._load, self._clock, self._steady = journal, load, clock, steady
        self._points: list[Point] = []
        self._asked: list[_Asked] = []
        self._taken: dict[bool, float] = {}
        self._last = 0.0
        self._set_back: tuple[float, float] | None = None
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Write a batch now and then."""
        self._task = asyncio.create_task(self._run(), name="recorder")

    async def close(self) -> None:
        """Write what waits, and end."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.flush()

    def on_sample(self, seen: MonitorSnapshot) -> None:
        """New values of the sensors, or of the host while none run."""
        fresh = seen.active and not seen.stale and seen.age_s is not None and seen.age_s < 1.0
        now = self._steady()
        if now - self._taken.get(fresh, float("-inf")) < _PACE_S or (at := self._moment()) is None:
            return
        self._taken[fresh] = now
        made = points_of(at, seen, self._load(), fresh=fresh)
        room = MOST_POINTS - len(self._points)
        self._points += made[:room]
        self._journal.lose(max(0, len(made) - room))

    def decided(
        self,
        request_id: str,
        features: Features,
        view: View,
        decision: Decision,
        *,
        moment: Moment = "first",
        given: Mapping[str, Any] | None = None,
        cause: str = "",
    ) -> None:
        """A decision, with all that it was made from. `cause`: a side's words in its detail; not kept."""
        if len(self._asked) >= MOST_DECISIONS:
            self._journal.lose(1)
            return
        self._asked.append(
            _Asked(self._clock(), request_id, features, view, decision, moment, given or {}, cause)
        )

    async def flush(self) -> None:
        """Hand what waits to the journal."""
        async with self._writing:
            back, self._set_back = self._set_back, None
            points, self._points = self._points, []
            asked, self._asked = self._asked, []
            if back is not None:
                await self._journal.forget_between(*back)
            if points or asked:
                decided = await asyncio.to_thread(_decisions, asked)
                await self._journal.keep(points, decided, self._clock())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(BATCH_S)
            try:
                await self.flush()
            except Exception:
                log.exception("samples could not be written")  # the next ones may be

    def _moment(self) -> float | None:
        """The time of a new sample; None while the clock has to catch up with the last one."""
        at = round(self._clock(), 3)
        if at < self._last - _SET_BACK_S:
            until = self._last if self._set_back is None else max(self._last, self._set_back[1])
            self._set_back = (at if self._set_back is None else min(at, self._set_back[0]), until)
            self._points = [point for point in self._points if point.at < at]
        elif at <= self._last:
            return None
        self._last = at
        return at


def _decisions(asked: Sequence[_Asked]) -> list[Decided]:
    return [
        Decided(
            one.at, one.request_id, one.moment, one.features.model, one.decision.target, one.decision.reason,
            _without(one.decision.detail, one.cause), one.decision.remote, asdict(one.features),
            asdict(one.view), one.given,
        )
        for one in asked
    ]  # fmt: skip


def _without(detail: str, cause: str) -> str:
    """The router's own words. What a side says when it fails may quote the request."""
    return detail.replace(f" ({clean_line(cause, _LONGEST_CAUSE)})", "") if cause else detail
