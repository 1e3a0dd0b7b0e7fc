"""A position in a header: every read is checked, and all work is counted.

The window keeps memory bounded however long the header is; the budgets keep time bounded. They are above any
real model and low enough that the worst file within them takes about a tenth of a second.
"""

from __future__ import annotations

import struct

from appliance.errors import GgufError
from appliance.gguf import strings
from appliance.gguf.source import Source
from appliance.text import clean_line

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_EFFORT = 1_050_000
"""All work that one header may take. The unit is an empty string in a long array, the cheapest thing that is
walked (0.06 to 0.1 µs). The largest vocabularies have 780,000 strings with their merges."""
_USUAL_BYTES = 16  # of a string with its length
_EXCESS_BYTES = 24  # of longer strings cost one more unit
_SLOW_STRING = 140
_WINDOW = 60
_WINDOW_BYTES = 400  # of a window cost one more unit


class Cursor:
    """Running off the end, or out of a budget, raises GgufError."""

    def __init__(self, source: Source) -> None:
        self._source = source
        first, last = source.windows
        self._window, self._wanted = source.read_at(0, first), min(first * 2, last)
        self._base = 0
        self._at = 0
        self._effort = _EFFORT

    @property
    def position(self) -> int:
        """Absolute offset of the next byte."""
        return self._base + self._at

    @property
    def remaining(self) -> int | None:
        """Bytes left in the whole file, None when its size is not known."""
        return None if self._source.size is None else self._source.size - self.position

    def u32(self) -> int:
        start = self._need(4)
        value: int = _U32.unpack_from(self._window, start)[0]
        return value

    def u64(self) -> int:
        start = self._need(8)
        value: int = _U64.unpack_from(self._window, start)[0]
        return value

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next values, which must be whole numbers."""
        start = self._need(layout.size)  # may replace the window
        return layout.unpack_from(self._window, start)

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        start = self._need(length)
        return self._window[start : start + length]

    def skip(self, length: int) -> None:
        """Go on without reading. Raises GgufError when the file ends before."""
        left = self.remaining
        if left is not None and length > left:
            raise self.truncated(length)
        self._at += length

    def require(self, length: int) -> None:
        """Raises GgufError when fewer than `length` bytes are left in the file."""
        left = self.remaining
        if left is not None and length > left:
            raise self.truncated(length)

    def spend(self, effort: int) -> None:
        """Count work before it is done. Raises GgufError when a header needs too much."""
        self._effort -= effort
        if self._effort < 0:
            raise bad("it takes more work to read than that of any real model")

    def skip_strings(self, count: int) -> None:
        """Pass `count` strings without decoding them."""
        self.spend(count)
        while count:
            begin, before = self.position, count
            self._at, done, slow = strings.walk(self._window, self._at, count)
            count -= done
            if count:
                self.skip(self.u64())  # the one that crosses the window's end
                count, slow = count - 1, slow + 1
            excess = self.position - begin - (before - count) * _USUAL_BYTES
            self.spend(slow * _SLOW_STRING + max(0, excess) // _EXCESS_BYTES)

    def truncated(self, wanted: int) -> GgufError:
        """The error for a header that ends too early."""
        return GgufError(
            "The GGUF header is cut off.",
            cause=f"{wanted} more bytes should follow byte {self.position}, and the file ends before.",
            hint="The file is incomplete or damaged: check it, or fetch it again.",
        )

    def _need(self, length: int) -> int:
        """Make `length` bytes available, step over them, and return where they start in the window."""
        if self._at + length > len(self._window):
            self._refill(length)
        start = self._at
        self._at += length
        return start

    def _refill(self, length: int) -> None:
        first, last = self._source.windows
        if self._at > len(self._window) + first:  # a jump: what follows may be short
            self._wanted = first
        wanted = max(length, self._wanted)
        self.require(length)
        self.spend(_WINDOW + wanted // _WINDOW_BYTES)
        self._base, self._at = self._base + self._at, 0
        self._window = self._source.read_at(self._base, wanted)
        self._wanted = min(self._wanted * 2, last)
        if len(self._window) < length:
            raise self.truncated(length)


def bad(why: str) -> GgufError:
    """The error for a header that contradicts itself or is beyond any real model."""
    return GgufError(
        "The GGUF header can't be used.",
        cause=clean_line(why, 300),
        hint="The file is damaged or not a model: fetch it again, or take it from another source.",
    )
