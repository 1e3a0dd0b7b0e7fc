"""Server-sent events, cut at blank lines and kept byte for byte.

Lines end with LF, CRLF or CR (WHATWG HTML, section "Parsing an event stream"), and TCP cuts anywhere: inside
a character, inside a CRLF. The cuts found are the same for every chunking of the same bytes. After CR CR a
following LF counts as the start of the next event (a blank line there means nothing), so that no event has to
wait for a byte that may never come.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_END = re.compile(
    rb"\r\n(?:\r\n|\n|\r(?=[^\n]))"
    rb"|\n(?:\n|\r\n|\r(?=[^\n]))"
    rb"|\r\r"
)
_LINE = re.compile(rb"\r\n|\n|\r")
_LONGEST_END = 5
"""Bytes: the longest blank line and the byte that must be seen after it."""


class EventTooLong(ValueError):
    """One event has more bytes than allowed."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What one event says."""

    data: bytes | None
    """Its `data` lines, joined by LF; None for comments and empty events."""
    event: bytes | None = None


class Splitter:
    """Feed it chunks, get whole events with their blank lines. It holds `limit` bytes and a chunk at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes. Raises EventTooLong."""
        seen = max(0, len(self._rest) - _LONGEST_END)
        self._rest += chunk
        start = 0
        events: list[bytes] = []
        while match := _END.search(self._rest, max(start, seen)):
            events.append(bytes(self._rest[start : match.end()]))
            start = match.end()
        del self._rest[:start]
        if len(self._rest) > self._limit:
            raise EventTooLong(f"an event has more than {self._limit} bytes")
        return events

    @property
    def rest(self) -> bytes:
        """Bytes of an event that is not complete: at the end of a stream they mean nothing."""
        return bytes(self._rest)


def fields(raw: bytes) -> Fields:
    """Read one event."""
    data: list[bytes] = []
    event = None
    for line in _LINE.split(raw):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
    return Fields(b"\n".join(data) if data else None, event)
