"""The beginning of a file on a server, fetched by HTTP ranges as the reader asks for it.

Windows grow from 256 KiB to 4 MiB; what the reader jumps over is not fetched. A server that knows no ranges
is read like a stream, up to where the header ends.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from appliance import web
from appliance.errors import DownloadError
from appliance.gguf.refused import Refused
from appliance.text import clean_line

_MAX_BYTES = 64 << 20
_MAX_REQUESTS = 64
_DEADLINE_S = 60.0
_TRIES = 3
_PIECE = 1 << 18
_PATIENCE = web.Patience(connect_s=15.0, silence_s=15.0)
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")
_LENGTH = re.compile(r"[0-9]{1,18}")
_GONE = frozenset({401, 403, 404, 410})


@contextlib.contextmanager
def opened(url: str, token: str | None, env: Mapping[str, str] | None = None) -> Iterator[RemoteSource]:
    """A source for `url`, whose connection is closed at the end."""
    with web.Client(_PATIENCE, env) as client:
        yield RemoteSource(client, url, token)


class RemoteSource:
    """Reads forward, within limits on bytes, requests and time. Every failure is DownloadError."""

    windows = (256 << 10, 4 << 20)

    def __init__(self, client: web.Client, url: str, token: str | None) -> None:
        self._client = client
        self._asked = self._url = url
        self._token = token
        self._deadline = time.monotonic() + _DEADLINE_S
        self._bytes, self._requests = _MAX_BYTES, _MAX_REQUESTS
        self._stream: web.Answer | None = None
        self._at = 0
        """Where `_stream` stands: the whole body of a server that knows no ranges."""
        self._kept, self._kept_at = b"", 0
        self._etag: str | None = None
        self.size: int | None = None

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer at the end of the file."""
        found = bytearray(self._kept[offset - self._kept_at :][:length] if offset >= self._kept_at else b"")
        while len(found) < length and (self.size is None or offset + len(found) < self.size):
            piece = self._some(offset + len(found), length - len(found))
            if not piece:
                break
            found += piece
        self._kept, self._kept_at = bytes(found), offset
        return self._kept

    def _some(self, offset: int, length: int) -> bytes:
        """Bytes at `offset`, not always all; b"" at the end of the file."""
        why = ""
        for _ in range(_TRIES):
            try:
                if self._stream is None or self._at > offset:
                    answer = self._ask(offset, length)
                    if answer is None or answer.status == 206:
                        return b"" if answer is None else self._read(answer, length)
                    self._stream, self._at = answer, 0
                return self._read_stream(self._stream, offset, length)
            except web.Broken as broken:
                self._stream, why = None, broken.why
        raise self._failed(f"{why[:1].upper()}{why[1:]}.")

    def _ask(self, offset: int, length: int) -> web.Answer | None:
        """An answer with the range, or with the whole file (200). None = the file ends before `offset`."""
        self._requests -= 1
        if self._requests < 0 or time.monotonic() > self._deadline:
            raise self._too_much()
        answer = self._get({"Range": f"bytes={offset}-{offset + length - 1}"})
        found = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        total = (
            answer.headers.get("Content-Length", "") if answer.status == 200 else found[2] if found else ""
        )
        if answer.status == 416:
            total = answer.headers.get("Content-Range", "").removeprefix("bytes */")
            if not _LENGTH.fullmatch(total) or int(total) > offset:
                raise self._failed("It refuses the range that was asked for.")
        elif answer.status not in (200, 206):
            raise self._refused(answer.status, answer.headers.get("X-Error-Code", ""))
        elif answer.status == 206 and (found is None or int(found[1]) != offset):
            raise self._failed("It sent another range than was asked for.")
        else:
            self._check_form(answer)
        self._remember(int(total) if _LENGTH.fullmatch(total) else None, answer.headers.get("ETag", ""))
        return None if answer.status == 416 else answer

    def _get(self, headers: Mapping[str, str]) -> web.Answer:
        """Ask where the last answer came from; the first address again when that one has expired."""
        resolved = self._url != self._asked
        answer = self._client.get(self._url, headers, token=None if resolved else self._token)
        if resolved and answer.status in _GONE:
            answer = self._client.get(self._asked, headers, token=self._token)
        if answer.redirected and answer.status == 206:
            self._url = answer.url
        return answer

    def _read(self, answer: web.Answer, length: int) -> bytes:
        found = bytearray()
        while len(found) < length and (piece := self._piece(answer, length - len(found))):
            found += piece
        answer.finish()
        return bytes(found)

    def _read_stream(self, stream: web.Answer, offset: int, length: int) -> bytes:
        while self._at < offset:
            passed = len(self._piece(stream, offset - self._at))
            if not passed:
                return b""
            self._at += passed
        piece = self._piece(stream, length)
        self._at += len(piece)
        return piece

    def _piece(self, answer: web.Answer, length: int) -> bytes:
        if time.monotonic() > self._deadline:
            raise self._too_much()
        piece = answer.read1(min(length, _PIECE))
        self._bytes -= len(piece)
        if self._bytes < 0:
            raise self._too_much()
        return piece

    def _remember(self, size: int | None, etag: str) -> None:
        """Every answer has to be of one and the same file."""
        strong = etag if etag.startswith('"') else None
        changed_size = None not in (size, self.size) and size != self.size
        changed_etag = None not in (strong, self._etag) and strong != self._etag
        if changed_size or changed_etag:
            raise self._failed("The file changed while it was read.")
        self.size = self.size if size is None else size
        self._etag = self._etag or strong

    def _check_form(self, answer: web.Answer) -> None:
        encoding = answer.headers.get("Content-Encoding", "identity").lower()
        kind = answer.headers.get("Content-Type", "").lower()
        if kind.startswith(("text/html", "application/xhtml")):
            raise DownloadError(
                f"{self._host} answers with a web page instead of the file.",
                cause=f"The address was {web.shown(self._asked)}.",
                hint="Use the address of the file itself (on the Hub: /resolve/ instead of /blob/), "
                "or sign in to the network first.",
            )
        if encoding not in ("", "identity"):
            raise self._failed(f"It sends the file with the encoding {clean_line(encoding, 40)}.")

    @property
    def _host(self) -> str:
        return urlsplit(self._asked).hostname or "the server"

    def _failed(self, cause: str) -> DownloadError:
        return DownloadError(
            f"The header of {web.shown(self._asked)} can't be read.",
            cause=cause,
            hint="Check the network and the address, then try again.",
        )

    def _too_much(self) -> DownloadError:
        return self._failed(
            f"It takes over {_MAX_BYTES >> 20} MiB, {_MAX_REQUESTS} requests or {_DEADLINE_S:.0f} seconds."
        )

    def _refused(self, status: int, code: str) -> Refused:
        hints = {
            401: "Set HF_TOKEN to a valid token; an address that does not exist may answer so, too.",
            403: "Accept the terms of the model on its page, and set HF_TOKEN to a token of that account.",
            404: "Check the address: the repository, the revision or the file is not there.",
        }
        return Refused(
            f"{self._host} refused {web.shown(self._asked)} with status {status}.",
            status,
            clean_line(code, 40),
            hint=hints.get(status, "Check the address, or try again later."),
        )
