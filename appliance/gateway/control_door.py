"""The door of the control plane: its token, its bodies, its errors."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from appliance.errors import ApplianceError, UsageError
from appliance.gateway.access import unreadable
from appliance.gateway.control_ports import Document
from appliance.text import clean_line
from appliance.units import size

log = logging.getLogger("appliance.control")
MAX_BODY = 1 << 20
Call = Callable[[web.Request], Awaitable[Document]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Door:
    """Checks the token and turns documents and errors into responses."""

    def __init__(self, token: str) -> None:
        self._token = token

    def lets(self, request: web.Request) -> bool:
        """True for the holder of `daemon.json`'s token."""
        given = request.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), f"Bearer {self._token}".encode())

    def answer(self, call: Call) -> Handler:
        """A handler that answers with the call's document, or with its error."""

        async def handle(request: web.Request) -> web.StreamResponse:
            if not self.lets(request):
                return denied()
            try:
                return web.json_response(dict(await call(request)))
            except ApplianceError as error:
                return web.json_response({"error": error.to_json()}, status=_status(error))
            except Exception:
                log.exception("a control request failed unexpectedly")
                unexpected = ApplianceError(
                    "The daemon failed on this request.", hint="Its log has the details."
                )
                return web.json_response({"error": unexpected.to_json()}, status=500)

        return handle


def denied() -> web.Response:
    """401, and who may come in."""
    error = {
        "code": "control_token",
        "message": "The control plane takes only the daemon's token.",
        "cause": None,
        "hint": "Use the `appliance` command as the user who started the daemon.",
    }
    return web.json_response({"error": error}, status=401)


def _status(error: ApplianceError) -> int:
    return getattr(error, "http_status", None) or error.status


async def with_body(request: web.Request, call: Callable[[Document], Awaitable[Document]]) -> Document:
    """`call` with the request's JSON object. Raises UsageError for any other body."""
    if request.content_type != "application/json":
        raise UsageError("The control plane takes JSON.", hint="Send Content-Type: application/json.")
    raw = b"" if request.can_read_body else b"{}"
    try:
        while not request.content.at_eof() and len(raw) <= MAX_BODY:
            raw += await request.content.read(MAX_BODY + 1 - len(raw))
    except web.RequestPayloadError:
        raise unreadable(request) from None
    if len(raw) > MAX_BODY:
        raise UsageError(f"The request is larger than {size(MAX_BODY)}.")
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        raise UsageError("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise UsageError("The body is not a JSON object.")
    return await call(body)


def number(request: web.Request, name: str, default: int) -> int:
    """A whole number of the query. Raises UsageError."""
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise UsageError(f"{name} is not a number.")
    return int(text)


def only(request: web.Request, *names: str) -> None:
    """What the query may hold; a name or a second value that is passed over would look as if it were
    obeyed.

    Raises UsageError.
    """
    unknown = sorted(set(request.query) - set(names))
    if unknown:
        raise UsageError(
            f"{clean_line(unknown[0], 40)} is not known here.", hint=f"Known are {', '.join(names)}."
        )
    if twice := [name for name in names if len(request.query.getall(name, [])) > 1]:
        raise UsageError(f"{twice[0]} is given twice.", hint="Give it once.")


def switch(request: web.Request, name: str) -> bool:
    """`1` or `0` of the query; not given is off. Raises UsageError."""
    text = request.query.get(name, "0")
    if text not in ("0", "1"):
        raise UsageError(f"{name} is neither 0 nor 1.")
    return text == "1"


def one_of(request: web.Request, name: str, words: tuple[str, ...]) -> str:
    """One of the words; not given is the first. Raises UsageError."""
    text = request.query.get(name, words[0])
    if text not in words:
        raise UsageError(f"{name} is none of: {', '.join(words)}.")
    return text


def moment(request: web.Request, name: str) -> float | None:
    """Unix seconds with or without a fraction; None when not given. Raises UsageError."""
    text = request.query.get(name)
    if text is None:
        return None
    whole, _, part = text.partition(".")
    if not (text.isascii() and whole.isdigit() and (part or "0").isdigit() and len(text) <= 24):
        raise UsageError(f"{name} is no time in Unix seconds.")
    return float(text)
