"""The header of a model on a web server, read over ranges, and what the server says of the whole file."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from appliance import web
from appliance.errors import DownloadError
from appliance.gguf import Header, read_header

_PATIENCE = web.Patience(connect_s=15.0, silence_s=15.0)
_HEX = re.compile(r"[0-9a-f]{64}")


class Refused(DownloadError):
    """The server answered with a status instead of the file."""

    def __init__(self, shown: str, http_status: int) -> None:
        super().__init__(
            f"{shown} answered with status {http_status}.",
            hint="Check the address; what needs a login can't be added.",
        )
        self.http_status = http_status


@dataclass(frozen=True, slots=True)
class Peeked:
    """A look at a file on a server."""

    header: Header
    size: int | None
    sha256: str | None
    """As the server states it; None = it states none, or over a line that others could change."""
    sha256_from: str | None
    """The header of the answer that stated it."""


def peek(url: str, env: Mapping[str, str] | None = None, token: str | None = None) -> Peeked:
    """What the server states, and the GGUF header. Blocks, for about a minute at most, and changes nothing.

    Raises GgufError, Refused, or DownloadError for the way there.
    """
    with web.Client(_PATIENCE, env) as client:
        try:
            answer = client.get(url, {"Range": "bytes=0-0"}, token=token)
        except web.Broken as error:
            raise DownloadError(
                f"{web.shown(url)} can't be read.",
                cause=f"{error.why[:1].upper()}{error.why[1:]}.",
                hint="Check the address and the network.",
            ) from error
        if answer.status not in (200, 206):
            raise Refused(web.shown(url), answer.status)
        size, (sha256, by) = _size(answer), _stated_hash(answer, url)
    return Peeked(read_header(url, token=token), size, sha256, by)


def _size(answer: web.Answer) -> int | None:
    """Bytes of the whole file, as the answer states them."""
    if answer.status == 206:
        total = (answer.headers.get("Content-Range") or "").rpartition("/")[2]
    else:
        total = answer.headers.get("Content-Length") or ""
    return int(total) if total.isascii() and total.isdigit() and len(total) < 16 and int(total) > 0 else None


def _stated_hash(answer: web.Answer, url: str) -> tuple[str | None, str | None]:
    """A SHA-256 of the whole file that the server states, when nobody on the way could have changed it."""
    if not (_safe(url) and _safe(answer.url)):
        return None, None
    linked = answer.stated.get("X-Linked-Etag", "").strip('"').lower()
    plain = (answer.headers.get("X-Checksum-Sha256") or "").lower()
    found = {
        "X-Linked-Etag": linked,
        "X-Checksum-Sha256": plain,
        "Repr-Digest": _digest(answer.headers.get("Repr-Digest") or ""),
    }
    for by, value in found.items():
        if _HEX.fullmatch(value):
            return value, by
    return None, None


def _digest(field: str) -> str:
    """The SHA-256 of a `Repr-Digest` (RFC 9530), in hex."""
    found = re.search(r"sha-256=:([A-Za-z0-9+/=]{44}):", field)
    if found is None:
        return ""
    try:
        return base64.b64decode(found[1], validate=True).hex()
    except binascii.Error:
        return ""


def _safe(url: str) -> bool:
    """Encrypted, or not leaving this computer."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
