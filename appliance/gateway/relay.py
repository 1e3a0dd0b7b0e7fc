"""From an upstream stream to the client: what is complete, what goes on, and which chunk carries the truth.

Pure; the I/O is in journey.py and downstream.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.gateway import failures
from appliance.gateway.chunks import Chunk, with_appliance
from appliance.gateway.failures import Told, UpstreamError, UpstreamFailed, UpstreamRefused


class Track:
    """Whether a reply has begun and whether it is complete.

    Complete = all `choices` that were asked have a finish_reason, and no error came. An engine may give fewer
    than asked, but then only an explicit [DONE] ends the reply; and it proves nothing while a choice that
    appeared is open: vLLM sends it after an error, too.
    """

    def __init__(self, side: str, choices: int) -> None:
        self._side = side
        self._choices = choices
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._done = False
        self.started = False
        """The first content, reasoning, tool call or finish_reason came: no other side may answer now."""

    def note(self, chunk: Chunk) -> None:
        """Raises UpstreamFailed or UpstreamRefused for an error event, garbage, and a false [DONE]."""
        if chunk.kind == "error":
            raise self._error(failures.read(200, chunk.data or {}))
        if chunk.kind == "garbage":
            raise UpstreamFailed(
                "5xx", "it sent an event that is not JSON", started=self.started, answered=True
            )
        self._done = self._done or chunk.kind == "done"
        if chunk.kind == "done" and not self.complete:
            raise UpstreamFailed(
                "5xx", "the stream ended without a finish_reason", started=self.started, answered=True
            )
        self._seen |= chunk.indices
        self._finished |= chunk.finished
        self.started = self.started or chunk.speaks or bool(chunk.finished)

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        whole = self._done or len(self._finished) >= self._choices
        return whole and bool(self._finished) and self._seen <= self._finished

    def _broken(self, message: str) -> UpstreamFailed:
        return UpstreamFailed("5xx", message, started=self.started, answered=True)

    def _error(self, told: Told) -> UpstreamError:
        if self._side == "local" and not self.started:
            told = told.judged()
        if not self.started and 400 <= told.status < 500 and told.status != 429:
            return UpstreamRefused(told, side=self._side)
        outcome = "4xx" if told.status == 429 else "5xx"
        return UpstreamFailed(outcome, told.message, started=self.started, answered=True, told=told)


class Relay:
    """Chunks in, bytes for the client out: as they came, but for the chunk that ends the last choice.

    With several choices the last end is known only afterwards when an engine gives fewer than asked, so an
    end that may be the last waits for the next event.
    """

    def __init__(self, choices: int, *, wants_usage: bool, appliance: Callable[[], dict[str, Any]]) -> None:
        self._choices = choices
        self._wants_usage = wants_usage
        self._appliance = appliance
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._parting: Chunk | None = None
        self._late = b""
        """The usage that came after it: an engine may give one per choice."""

    def feed(self, chunk: Chunk) -> bytes:
        """What goes to the client now."""
        if chunk.kind == "quiet":
            return chunk.raw
        if chunk.kind == "done":
            return self.end() + chunk.raw
        if chunk.only_usage:
            usage = chunk.raw if self._wants_usage else b""
            if self._parting is None:
                return usage
            self._late += usage
            return b""
        before = (self._parting.raw if self._parting else b"") + self._late
        self._parting, self._late = None, b""
        self._seen |= chunk.indices
        self._finished |= chunk.finished
        if not chunk.finished or not self._seen <= self._finished:
            return before + chunk.raw
        if len(self._finished) >= self._choices:
            return before + with_appliance(chunk, self._appliance())
        self._parting = chunk
        return before

    def end(self) -> bytes:
        """The end that waited."""
        chunk, self._parting = self._parting, None
        late, self._late = self._late, b""
        return (with_appliance(chunk, self._appliance()) if chunk else b"") + late
