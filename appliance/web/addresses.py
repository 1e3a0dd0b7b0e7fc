"""HTTP addresses: taken apart, joined, and shown without what is secret in them."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import quote, unquote, urljoin, urlsplit

from appliance.errors import DownloadError
from appliance.text import clean_line

Origin: TypeAlias = tuple[str, str, int]
_PORTS = {"http": 80, "https": 443}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?")
_KEPT = "".join(map(chr, range(0x21, 0x7F))).translate({ord(c): None for c in '"<>\\^`{|}#'})


@dataclass(frozen=True, slots=True)
class Address:
    """An absolute http or https address in its parts, ready to be asked for."""

    scheme: str
    host: str
    """Lower case, in ASCII, without the brackets of an IPv6 literal."""
    port: int
    target: str
    """Path and query, percent-encoded."""
    userinfo: str | None = None
    """`user:password` as written in the address."""

    @property
    def origin(self) -> Origin:
        return self.scheme, self.host, self.port

    @property
    def bracketed(self) -> str:
        """The host as it stands in an address."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def authority(self) -> str:
        """Host and, unless it is the usual one, port."""
        return self.bracketed if self.port == _PORTS[self.scheme] else f"{self.bracketed}:{self.port}"

    @property
    def url(self) -> str:
        """The whole address, with the secrets that it may hold."""
        user = f"{self.userinfo}@" if self.userinfo else ""
        return f"{self.scheme}://{user}{self.authority}{self.target}"

    @property
    def credentials(self) -> str | None:
        """`user:password`, decoded."""
        return unquote(self.userinfo) if self.userinfo else None


def parse(url: str) -> Address:
    """The parts of an absolute address. Raises DownloadError; its text holds nothing of a broken address."""
    try:
        return _parse(url)
    except ValueError:
        raise DownloadError(
            "A download address can't be used.",
            cause="It is no complete http or https address.",
            hint="Check the entry in the catalog, and HF_ENDPOINT if it is set.",
        ) from None


def origin(url: str) -> Origin:
    """Scheme, host and port of an absolute address. Raises DownloadError."""
    return parse(url).origin


def _parse(url: str) -> Address:
    url = url.strip()
    if _CONTROL.search(url):  # urlsplit drops some of them, so that another host would be asked than is read
        raise ValueError
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if scheme not in _PORTS:
        raise ValueError
    host = _host(parts.hostname or "")
    port = parts.port or _PORTS[scheme]
    target = _encoded(parts.path or "/") + (f"?{_encoded(parts.query)}" if parts.query else "")
    userinfo = parts.netloc.rpartition("@")[0] or None
    if "\\" in parts.netloc:
        raise ValueError
    return Address(scheme, host, port, target, userinfo)


def _host(host: str) -> str:
    if not host:
        raise ValueError
    if ":" in host and "%" not in host:  # a zone means something on one computer only
        return str(ipaddress.IPv6Address(host))
    try:
        name = host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise ValueError from None
    if not _NAME.fullmatch(name):
        raise ValueError
    return name


def _encoded(part: str) -> str:
    return quote(part, safe=_KEPT)


def join(here: Address, location: str | None, first: Address) -> Address:
    """Where a redirect leads. `location` is the header as http.client gives it (Latin-1).

    User and password of `first` stay with its origin and go nowhere else. Raises DownloadError for what must
    not be followed.
    """
    try:
        raw = (location or "").strip().encode("latin-1", "replace")
        there = _parse(_joined(here, quote(raw, safe=_KEPT + "#")))
    except ValueError:
        raise DownloadError(
            f"{here.host} redirects to nowhere.", hint="Check the address or the proxy."
        ) from None
    if here.scheme == "https" and there.scheme == "http":
        raise DownloadError(
            f"{here.host} redirects from https to http.",
            cause=f"The target is {shown(there.url)}.",
            hint="An encrypted transfer is never continued in the open.",
        )
    return replace(there, userinfo=first.userinfo if there.origin == first.origin else None)


def _joined(here: Address, location: str) -> str:
    if not location:
        raise ValueError
    if location.startswith("//"):
        return f"{here.scheme}:{location}"
    if urlsplit(location).scheme:  # urljoin would take `http:` and a path for a path of this host
        return location
    return urljoin(replace(here, userinfo=None).url, location)


def shown(url: str) -> str:
    """An address without user, password, query and fragment: for messages, logs and files."""
    try:
        parts = urlsplit(url)
        host = _host(parts.hostname or "")
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "(an address that can't be read)"
    host = f"[{host}]" if ":" in host else host
    return clean_line(f"{parts.scheme}://{host}{port}{parts.path}")
