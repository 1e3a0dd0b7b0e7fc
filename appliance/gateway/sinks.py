"""Where a reply goes: on to a client as events, or together into one plain document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from appliance.gateway.ask import Ask
from appliance.gateway.assemble import Assembler
from appliance.gateway.chunks import Chunk
from appliance.gateway.course import Course
from appliance.gateway.downstream import Downstream
from appliance.gateway.limits import Limits
from appliance.gateway.relay import Relay


class StreamSink:
    """Events on to the client."""

    def __init__(self, down: Downstream, ask: Ask, course: Course) -> None:
        self._down = down
        self._course = course
        self._relay = Relay(ask.choices, wants_usage=ask.wants_usage, appliance=course.appliance)

    async def begin(self) -> None:
        """Headers go out, unless `pending` ones are."""
        await self._down.settle()

    async def put(self, events: Sequence[Chunk]) -> None:
        """One write for all events of one read."""
        await self._down.write(b"".join(self._relay.feed(chunk) for chunk in events))
        self._course.delivered = any(chunk.kind == "done" for chunk in events)

    async def whole(self, reply: dict[str, Any]) -> None:
        """Only generations stream."""
        raise TypeError("a plain document is no event stream")

    async def end(self) -> None:
        """What the relay still holds."""
        await self._down.write(self._relay.end())
        self._course.delivered = True


class PlainSink:
    """Events into one document, `reply`."""

    def __init__(self, course: Course, limits: Limits) -> None:
        self._course = course
        self._assembler = Assembler(limits.reply_bytes)
        self._whole: dict[str, Any] | None = None

    @property
    def reply(self) -> dict[str, Any]:
        """The document with the `appliance` object; complete once the journey has returned."""
        made = self._assembler.reply() if self._whole is None else self._whole
        return {**made, "appliance": self._course.appliance()}

    async def begin(self) -> None:
        """Nothing goes out before the end."""

    async def put(self, events: Sequence[Chunk]) -> None:
        """Adds them. Raises ReplyTooLong."""
        for chunk in events:
            if chunk.kind == "json" and chunk.data is not None:
                self._assembler.add(chunk.data, len(chunk.raw))

    async def whole(self, reply: dict[str, Any]) -> None:
        """A reply that came in one piece."""
        self._whole = reply

    async def end(self) -> None:
        """Nothing is left."""
