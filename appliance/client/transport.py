"""One HTTP exchange with the control plane: deadlines, errors, no redirects, no proxies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from appliance.client.fields import mapping, text
from appliance.client.record import UNCLEAR_HINT
from appliance.errors import ApplianceError, EngineFailed, NoDaemon, NotVerified, OutOfMemory, Rejected

if TYPE_CHECKING:
    from http.client import HTTPResponse

MAX_ANSWER_BYTES = 32 << 20
_PIECE = 1 << 16


class Transport:
    """Speaks to one daemon. Safe to use from several threads: each call has its own connection."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self.url = url
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 80
        self._token = token

    def __repr__(self) -> str:
        return f"Transport({self.url!r})"

    def call(self, method: str, path: str, body: object = None, *, timeout_s: float) -> dict[str, Any]:
        """Send one request and return its JSON object.

        Raises NoDaemon when nobody answers in time, and the error that the daemon reports otherwise.
        """
        deadline = time.monotonic() + timeout_s
        with self._open(method, path, body, timeout_s) as response:
            raw = self._read(response, deadline, timeout_s)
            return _judge(response.status, raw, self.url)

    @contextmanager
    def stream(self, path: str, *, timeout_s: float) -> Iterator[HTTPResponse]:
        """Open a server-sent event stream; `timeout_s` bounds each silence."""
        with self._open("GET", path, None, timeout_s, accept="text/event-stream") as response:
            if response.status != 200:
                _judge(
                    response.status, self._read(response, time.monotonic() + timeout_s, timeout_s), self.url
                )
            yield response

    @contextmanager
    def _open(
        self, method: str, path: str, body: object, timeout_s: float, accept: str = "application/json"
    ) -> Iterator[HTTPResponse]:
        from http.client import HTTPConnection, HTTPException  # imported late: it costs tens of milliseconds

        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        payload = None if body is None else json.dumps(body).encode()
        if payload is not None:
            headers["Content-Type"] = "application/json"
        connection = HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request(method, path, body=payload, headers=headers)
            yield connection.getresponse()
        except TimeoutError:
            raise self._silent(timeout_s) from None
        except (OSError, HTTPException) as error:
            raise NoDaemon(
                "The appliance daemon does not answer.",
                cause=f"{self.url}: {_why(error)}.",
                hint=UNCLEAR_HINT,
            ) from None
        finally:
            connection.close()

    def _read(self, response: HTTPResponse, deadline: float, timeout_s: float) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if time.monotonic() > deadline:
                raise self._silent(timeout_s)
            if size > MAX_ANSWER_BYTES:
                raise ApplianceError("The daemon's answer is too large.", cause=f"More than {size} bytes.")
        return b"".join(pieces)

    def _silent(self, timeout_s: float) -> NoDaemon:
        return NoDaemon(
            "The appliance daemon does not answer.",
            cause=f"{self.url} was silent for {timeout_s:g} s.",
            hint="It may be busy: try again. If it stays silent, end its process, then: `appliance up`.",
        )


def _why(error: Exception) -> str:
    """The reason in words; the text of an HTTPException is not shown, since it may quote what was sent."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return "the connection was closed" if isinstance(error, ConnectionError) else "not a proper HTTP answer"


def _judge(status: int, raw: bytes, url: str) -> dict[str, Any]:
    try:
        document = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        document = None
    if 200 <= status < 300 and isinstance(document, dict):
        return document
    error = mapping(mapping(document).get("error"))
    if status == 401 or (status == 403 and not error):
        raise NoDaemon(
            "The daemon refuses this client.",
            cause=f"The program at {url} does not accept the token of daemon.json.",
            hint=UNCLEAR_HINT,
        )
    if error:
        raise error_of(error, status)
    raise NoDaemon(
        "Another program answers where the daemon should be.",
        cause=f"{url} answered with status {status} and no control-plane document.",
        hint=UNCLEAR_HINT,
    )


def error_of(document: object, status: int) -> ApplianceError:
    """The exception for `{"code", "message", "cause", "hint"}`, by its code (so with its exit code)."""
    error = mapping(document)
    code = text(error.get("code")) or "failed"
    message = text(error.get("message")) or f"The daemon answered with status {status}."
    cause, hint = text(error.get("cause")), text(error.get("hint"))
    if code.startswith("reject.") or code == Rejected.code:
        reason = code if code.startswith("reject.") else text(error.get("reason")) or "reject.unavailable"
        return Rejected(message, reason=reason, http_status=status, cause=cause, hint=hint)
    if code in (EngineFailed.code, OutOfMemory.code):
        lines = error.get("lines")
        cleaned = tuple(line for line in map(text, lines if isinstance(lines, list) else []) if line)
        kind = EngineFailed if code == EngineFailed.code else OutOfMemory
        return kind(message, cause=cause, hint=hint, lines=cleaned)
    if code == NotVerified.code:
        return NotVerified(message, cause=cause, hint=hint, damage=_damage(error.get("damage")))
    return _by_code().get(code, ApplianceError)(message, cause=cause, hint=hint)


def _damage(value: object) -> tuple[dict[str, Any], ...]:
    """What is wrong with each file; its texts are cleaned."""
    rows = [mapping(row) for row in value] if isinstance(value, list) else []
    return tuple(
        {key: text(one) if isinstance(one, str) else one for key, one in row.items()} for row in rows if row
    )


def _by_code() -> dict[str, type[ApplianceError]]:
    found: dict[str, type[ApplianceError]] = {}
    kinds: list[type[ApplianceError]] = [ApplianceError]
    while kinds:
        kind = kinds.pop()
        found.setdefault(kind.code, kind)
        kinds.extend(kind.__subclasses__())
    return found
