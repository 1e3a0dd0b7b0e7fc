"""Who may talk to the gateway: localhost is not an open door.

A web page that the user visits can send requests to 127.0.0.1, directly or after DNS rebinding. So the Host
must be one of ours, a foreign or `null` Origin is refused, and a body must say that it is JSON (which a page
can't send across origins without a preflight, and preflights carry an Origin). Without keys only the same
user of this machine may call, and nobody from outside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass

from aiohttp import web

from appliance.errors import Rejected
from appliance.gateway.peers import is_loopback, peer_uid

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request."""

    identity: str
    """Receipts are readable by the same identity only."""
    unknown_user: bool
    """No key, and the OS user can't be known: nothing of it may leave this machine."""


def check_host(host: str | None, allowed: Collection[str] = ()) -> None:
    """Raises Rejected unless `host` (the Host header) names this machine, with any port."""
    match = _HOST.fullmatch(host or "")
    name = (match[1] or match[2]).lower().rstrip(".") if match else None
    if name is None or not (name in LOCAL_HOSTS or name in {a.lower().strip("[]") for a in allowed}):
        raise _refused(
            "This Host name is not one of the appliance's.",
            hint="Call it as 127.0.0.1 or localhost, or add the name to server.allowed_hosts.",
        )


def check_origin(origin: str | None, host: str | None) -> None:
    """Raises Rejected for an Origin that is not the gateway itself; programs send none."""
    if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
        raise _refused(
            "Requests from web pages are not answered.",
            hint="Call the API from a program, or through a server of your own.",
        )


def check_json(content_type: str, method: str) -> None:
    """Raises Rejected for a body that does not say it is JSON."""
    if method in ("POST", "PUT", "PATCH") and content_type != "application/json":
        raise Rejected(
            "The body must be JSON.",
            reason="reject.unsupported",
            http_status=415,
            hint="Send the header Content-Type: application/json.",
        )


def unreadable(request: web.Request) -> Rejected:
    """The error for a body that is not in the encoding that its headers name; nothing more of it is read."""
    request.content.feed_eof()  # else aiohttp reads on after the answer, and logs the same again
    return Rejected(
        "The body is not in the encoding that its Content-Encoding names.",
        reason="reject.unsupported",
        http_status=400,
        hint="Send plain JSON, without that header.",
    )


def caller_of(request: web.Request) -> Caller:
    """The caller of a keyless gateway. Raises Rejected for other machines and other users."""
    transport = request.transport
    peer = transport.get_extra_info("peername") if transport else None
    own = transport.get_extra_info("sockname") if transport else None
    if not (isinstance(peer, tuple) and isinstance(own, tuple) and is_loopback(str(peer[0]))):
        raise Rejected(
            "A caller from another machine needs a key.",
            reason="reject.key",
            http_status=401,
            hint="Without keys the appliance answers only on this machine.",
        )
    uid = peer_uid((str(peer[0]), int(peer[1])), (str(own[0]), int(own[1])))
    if uid is None:
        return Caller("loopback", unknown_user=True)
    if uid != os.getuid():
        raise _refused(
            "The appliance belongs to another user of this machine.",
            hint="Start one of your own (`appliance up --port 0`).",
        )
    return Caller(f"uid:{uid}", unknown_user=False)


def _refused(message: str, hint: str) -> Rejected:
    return Rejected(message, reason="reject.key", http_status=403, hint=hint)
