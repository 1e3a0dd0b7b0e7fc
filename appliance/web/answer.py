"""An answer whose body is read piece by piece."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Iterator, Mapping

from appliance.text import clean_line
from appliance.web.types import Broken
from appliance.web.wire import Wire

_HEADER_LIMIT = 16_384
_DRAINED = 1 << 16
_DRAIN_S = 2.0


class Headers(Mapping[str, str]):
    """Names in any case; of a repeated header the first value. Values are cleaned."""

    def __init__(self, found: http.client.HTTPMessage | None = None) -> None:
        self._values: dict[str, str] = {}
        for name, value in found.items() if found is not None else ():
            self._values.setdefault(name.lower(), clean_line(str(value), _HEADER_LIMIT))

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Answer:
    """Made by `Client.get`; belongs to the thread of that client and ends with the client's next `get`."""

    def __init__(
        self,
        wire: Wire,
        response: http.client.HTTPResponse,
        host: str,
        silence_s: float,
        over: Callable[[bool], None],
    ) -> None:
        self._wire = wire
        self._response = response
        self._host = host
        self._silence_s = silence_s
        self._over: Callable[[bool], None] | None = over
        self._whole = False
        self.status = response.status
        self.headers: Mapping[str, str] = Headers(response.headers)
        self.url = ""
        """Where it came from, to ask for more without the redirects. It may be signed: never show it."""
        self.redirected = False
        self.stated: dict[str, str] = {}
        """`X-Repo-Commit`, `X-Linked-Etag` and `X-Linked-Size` from anywhere in the chain of redirects."""
        if response.length == 0:
            self._end(True)

    def read1(self, limit: int) -> bytes:
        """The next piece of the body, at most `limit` bytes; b"" = the body is complete.

        At most one wait for the socket, plus what the framing of a chunked body needs. Raises Broken, also
        when the connection ends before the announced length. Without an announced length the end of the
        connection is the end of the body.
        """
        if limit < 1:
            raise ValueError("a piece has at least one byte")
        if self._over is None:
            if self._whole:
                return b""
            raise Broken("the connection was closed")
        try:
            with self._wire.within(self._silence_s):
                piece = self._response.read1(limit)
            self._check(piece)
        except Broken:
            self._end(False)
            raise
        except (http.client.HTTPException, ValueError):
            self._end(False)
            raise Broken(f"{self._host} ended the transfer early") from None
        if not piece or self._response.length == 0:
            self._end(True)
        return piece

    def finish(self) -> None:
        """Done with this answer. Its connection is kept for the next one when little of it is left."""
        with contextlib.suppress(Broken):
            left = _DRAINED
            if (self._response.length or 0) <= left:
                self._silence_s = min(self._silence_s, _DRAIN_S)
                while left > 0 and (piece := self.read1(left)):
                    left -= len(piece)
        self._end(False)

    def give_up(self) -> None:
        """Done with this answer and its connection."""
        self._end(False)

    def _check(self, piece: bytes) -> None:
        chunk: object = getattr(self._response, "chunk_left", None)
        if (not piece and self._response.length) or (isinstance(chunk, int) and chunk < 0):
            raise Broken(f"{self._host} ended the transfer early")

    def _end(self, whole: bool) -> None:
        """Tell the client once what became of the connection."""
        over, self._over = self._over, None
        if over is not None:
            self._whole = whole
            reusable = whole and not self._response.will_close
            self._response.close()
            over(reusable)
