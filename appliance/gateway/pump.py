"""One upstream reply into a sink, holding back everything before the first delta."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import aiohttp

from appliance.gateway import chunks, sse, upstream
from appliance.gateway.assemble import ReplyTooLong
from appliance.gateway.chunks import Chunk
from appliance.gateway.course import Course
from appliance.gateway.failures import UpstreamFailed
from appliance.gateway.limits import Limits
from appliance.gateway.relay import Track
from appliance.gateway.tally import Tally
from appliance.routing import Side


class Sink(Protocol):
    """Where a reply goes."""

    async def begin(self) -> None:
        """The side is settled; the first delta follows."""
        ...

    async def put(self, events: Sequence[Chunk]) -> None:
        """The next events, in order. Raises ReplyTooLong."""
        ...

    async def whole(self, reply: dict[str, Any]) -> None:
        """A reply that is no stream (embeddings)."""
        ...

    async def end(self) -> None:
        """The reply is complete."""
        ...


class Pump:
    """Reads one side's answer. Nothing reaches the sink before the side has really begun to answer."""

    def __init__(
        self,
        sink: Sink,
        course: Course,
        side: Side,
        limits: Limits,
        *,
        choices: int,
        n: int,
        beat: Callable[[], None],
    ) -> None:
        """`beat` is called for each piece that arrives."""
        self._sink = sink
        self._course = course
        self._limits = limits
        self._beat = beat
        self._side = side
        self._track = Track(side, choices)
        self._tally = Tally(choices, n)
        self._splitter = sse.Splitter(limits.event_bytes)
        self._held: list[Chunk] = []
        self._held_bytes = 0
        self._begun = False

    async def whole(self, response: aiohttp.ClientResponse) -> None:
        """A plain JSON reply. Raises UpstreamFailed."""
        reply = await upstream.read_json(response, self._limits.reply_bytes)
        self._learn(reply)
        self._course.first_at = time.perf_counter()
        await self._sink.begin()
        await self._sink.whole(reply)

    async def stream(self, response: aiohttp.ClientResponse, clock: asyncio.Timeout) -> None:
        """An event stream; `clock` is stopped at the first delta.

        Raises UpstreamFailed (`started` says whether a delta was seen) and UpstreamRefused.
        """
        if response.content_type != "text/event-stream":
            raise UpstreamFailed(
                "5xx", f"it answered {response.content_type} instead of a stream", answered=True
            )
        try:
            while data := await upstream.read(response):
                self._beat()
                if await self._take(data, clock):
                    break
            if not self._track.complete:
                raise UpstreamFailed("reset", "the stream ended in the middle")
        except UpstreamFailed as failure:
            failure.started = self._track.started
            # Some servers cut the connection right after the end; nothing is missing then.
            if failure.outcome not in ("reset", "timeout") or not self._track.complete:
                raise
        except (sse.EventTooLong, ReplyTooLong) as error:
            raise UpstreamFailed("5xx", str(error), started=self._track.started, answered=True) from None
        await self._sink.end()

    async def _take(self, data: bytes, clock: asyncio.Timeout) -> bool:
        """The events that `data` completes; True after [DONE]."""
        done = False
        try:
            for raw in self._splitter.feed(data):
                chunk = chunks.read(raw)
                local = self._side == "local"
                chunk = self._tally.count(chunk) if local else chunks.with_reasoning_content(chunk)
                self._track.note(chunk)
                if chunk.data is not None:
                    self._learn(chunk.data)
                if chunk.speaks:
                    self._course.last_at = time.perf_counter()
                if self._track.started or chunk.kind != "quiet":
                    self._held.append(chunk)
                    self._held_bytes += len(chunk.raw)
                done = chunk.kind == "done"
                if done:
                    break
        finally:  # also what came before an error in the same piece
            await self._flush(clock)
        return done

    async def _flush(self, clock: asyncio.Timeout) -> None:
        if not self._track.started:
            if self._held_bytes > self._limits.event_bytes:
                raise UpstreamFailed("5xx", "it sends and sends without saying anything", answered=True)
            return
        if not self._begun:
            self._begun = True
            clock.reschedule(None)
            self._course.first_at = time.perf_counter()
            await self._sink.begin()
        held, self._held, self._held_bytes = self._held, [], 0
        await self._sink.put(held)

    def _learn(self, data: Mapping[str, Any]) -> None:
        if not self._begun:
            self._course.answered_by(data.get("model"))
        if isinstance(data.get("usage"), Mapping):
            self._course.usage = data["usage"]
        if isinstance(data.get("timings"), Mapping):
            self._course.timings = data["timings"]
