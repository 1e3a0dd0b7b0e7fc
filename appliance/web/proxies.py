"""Which proxy an address is asked through: what the environment says, else what the system says.

Only HTTP proxies: plain requests as a whole address, https through CONNECT.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import unquote, urlsplit

from appliance.errors import DownloadError
from appliance.text import clean_line
from appliance.web.addresses import Address


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where it listens, and `user:password` when it wants to know who asks."""

    host: str
    port: int
    credentials: str | None = None


def proxy_for(address: Address, env: Mapping[str, str] | None = None) -> Proxy | None:
    """The proxy for an address; None = ask its host directly.

    `env` stands for the environment of this process. Raises DownloadError for a proxy of another kind.
    """
    named = _named(os.environ if env is None else env)
    proxies = named or _of_system("getproxies_macosx_sysconf", dict[str, str])
    found = proxies.get(address.scheme) or proxies.get("all")
    if not found or _bypassed(address, named):
        return None
    return _parse(found)


def _named(env: Mapping[str, str]) -> dict[str, str]:
    """`http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`; lower case wins, as everywhere.

    In a CGI program `HTTP_PROXY` is a header of a stranger, so that only the lower-case one counts there.
    """
    proxies: dict[str, str] = {}
    for name, value in sorted(env.items()):  # capital letters sort first
        low = name.lower()
        if not low.endswith("_proxy") or (name == "HTTP_PROXY" and "REQUEST_METHOD" in env):
            continue
        if value:
            proxies[low.removesuffix("_proxy")] = value
        elif name == low:
            proxies.pop(low.removesuffix("_proxy"), None)
    return proxies


def _bypassed(address: Address, named: dict[str, str]) -> bool:
    if not named:
        return bool(_of_system("proxy_bypass_macosx_sysconf", bool, address.host))
    spots = (address.host, f"{address.bracketed}:{address.port}")
    for entry in named.get("no", "").lower().split(","):
        name = entry.strip().lstrip("*").lstrip(".")
        if entry.strip() == "*" or (name and any(s == name or s.endswith(f".{name}") for s in spots)):
            return True
    return False


def _of_system(name: str, default: Callable[[], object], *args: str) -> dict[str, str]:
    """What macOS is set to; other systems have the environment only."""
    function = getattr(urllib.request, name, None)
    return cast("dict[str, str]", function(*args) if function else default())


def _parse(found: str) -> Proxy:
    try:
        parts = urlsplit(found if "://" in found else f"http://{found}")
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        host, port = "", 0
    if not host:
        raise DownloadError(
            "The proxy's address can't be used.",
            hint="Set HTTPS_PROXY to http://HOST:PORT, or NO_PROXY for this host.",
        )
    if parts.scheme.lower() != "http":
        raise DownloadError(
            f"The proxy {clean_line(f'{parts.scheme}://{host}', 200)} can't be used.",
            hint="Only http:// proxies work (they carry https, too); set HTTPS_PROXY to one, "
            "or NO_PROXY for this host.",
        )
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(host, port, credentials)
