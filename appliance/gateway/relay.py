"""From an upstream stream to the client: what is complete, what goes on, and which chunk carries the truth.

Pure; the I/O is in journey.py and downstream.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.gateway.chunks import Chunk, with_appliance
from appliance.gateway.shapes import UpstreamFailed, UpstreamRefused
from appliance.gateway.upstream import error_of


class Track:
    """Whether a reply has begun and whether it is complete.

    Complete = every choice that appeared has a finish_reason, and no error came. [DONE] proves nothing:
    vLLM sends it after an error, too.
    """

    def __init__(self, side: str) -> None:
        self._side = side
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self.started = False
        """The first content, reasoning, tool call or finish_reason came: no other side may answer now."""

    def note(self, chunk: Chunk) -> None:
        """Raises UpstreamFailed or UpstreamRefused for an error event, garbage, and a false [DONE]."""
        if chunk.kind == "error":
            raise self._error(error_of(chunk.data or {}))
        if chunk.kind == "garbage":
            raise UpstreamFailed("5xx", "it sent an event that is not JSON", started=self.started)
        if chunk.kind == "done" and not self.complete:
            raise UpstreamFailed("5xx", "the stream ended without a finish_reason", started=self.started)
        self._seen |= chunk.indices
        self._finished |= chunk.finished
        self.started = self.started or chunk.speaks or bool(chunk.finished)

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        return bool(self._finished) and self._seen <= self._finished

    def _error(self, error: dict[str, Any]) -> Exception:
        code = error.get("code")
        if not self.started and isinstance(code, int) and 400 <= code < 500 and code != 429:
            return UpstreamRefused(code, error, side=self._side)
        told = str(error.get("message") or "it reported an error")
        return UpstreamFailed("5xx", told, started=self.started, error=error)


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

    def feed(self, chunk: Chunk) -> bytes:
        """What goes to the client now."""
        if chunk.kind == "quiet":
            return chunk.raw
        if chunk.kind == "done":
            return self.end() + chunk.raw
        if chunk.only_usage:
            return self.end() + (chunk.raw if self._wants_usage else b"")
        before = self._parting.raw if self._parting else b""
        self._parting = None
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
        return with_appliance(chunk, self._appliance()) if chunk else b""
