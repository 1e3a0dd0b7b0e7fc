"""From a started process to an engine that has proved that it works.

Ready is: `/health` says so, context and slots in `/props` are the planned ones ("it started" does not mean
"it fits"), and one token came out. The wait is on progress, not on a short clock: a large model may load for
minutes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import aiohttp

from appliance.engines import wire
from appliance.engines.adapters import slots_of
from appliance.engines.limits import Limits
from appliance.engines.logparse import LoadReader
from appliance.engines.process import Child
from appliance.engines.values import Endpoint, EngineKind, Launch
from appliance.errors import EngineFailed
from appliance.text import clean_line

_FIRST_POLL_S, _LAST_POLL_S = 0.02, 0.25
_DEATH_SHOWS_S = 0.2


async def load(
    child: Child,
    endpoint: Endpoint,
    launch: Launch,
    kind: EngineKind,
    *,
    reader: LoadReader,
    lines: Callable[[], int],
    limits: Limits,
) -> wire.Props:
    """Wait until it works, and return what it serves. `lines` counts its log lines.

    Raises EngineFailed when it hangs, serves less than planned, or does not answer the probe.
    """
    progress = Progress(limits)
    async with wire.session(endpoint) as client:
        pause = _FIRST_POLL_S
        while await wire.health(client, kind) != "ok":
            progress.check(lines(), child.activity())
            await asyncio.sleep(pause)
            pause = min(_LAST_POLL_S, pause * 1.5)
        try:
            props = _as_planned(await wire.props(client, kind), launch, kind, reader)
            await wire.probe(client, kind, launch, limits.probe_s)
        except (ValueError, TimeoutError, aiohttp.ClientError) as error:
            await asyncio.sleep(_DEATH_SHOWS_S)  # if it died of it, the exit code says more
            raise _does_not_work(error, reader, launch) from None
    return props


def _does_not_work(error: Exception, reader: LoadReader, launch: Launch) -> EngineFailed:
    """It started and does not answer; its log may say that memory ran out."""
    said = reader.failure
    if said is not None and said.memory is not None:
        place = reader.place_of(said, launch.plan.devices)
        return EngineFailed(
            "The engine started but does not work.", cause=said.cause, hint=said.hint, out_of_memory=place
        )
    return EngineFailed(
        "The engine started but does not work.",
        cause=clean_line(str(error) or "no answer in time", 300),
        hint="Start it again; try another engine (--engine) when it happens again.",
    )


def _as_planned(props: wire.Props, launch: Launch, kind: EngineKind, reader: LoadReader) -> wire.Props:
    """The engine's own figures. Raises ValueError when they are less than the plan's."""
    slots = slots_of(kind, launch.plan)
    ctx = props.ctx if props.ctx is not None else reader.ctx_slot or reader.n_ctx
    if (ctx is not None and ctx < launch.plan.ctx) or props.slots not in (None, slots):
        raise ValueError(
            f"planned were {slots} slots of {launch.plan.ctx} tokens; it has {props.slots} of {ctx}"
        )
    return wire.Props(ctx, props.slots)


class Progress:
    """Judges a load by what it does."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._began = self._last = clock()
        self._seen: tuple[int, tuple[float, int]] = (0, (0.0, 0))

    def check(self, lines: int, activity: tuple[float, int]) -> None:
        """Raises EngineFailed when nothing moved for too long, or it takes too long altogether."""
        now = self._clock()
        if (lines, activity) != self._seen:
            self._seen, self._last = (lines, activity), now
        if now - self._last > self._limits.stall_s:
            raise EngineFailed(
                "The engine hangs while loading.",
                cause=f"For {self._limits.stall_s:.0f} s it wrote nothing, read nothing and did not compute.",
                hint="Look at the GPU driver (`appliance doctor`), then start again, or use --gpu-layers 0.",
            )
        if now - self._began > self._limits.load_s:
            raise EngineFailed(
                f"The engine did not finish loading in {self._limits.load_s / 60:.0f} minutes.",
                hint="A smaller model or quant loads faster; a slow disk shows in `appliance doctor`.",
            )
