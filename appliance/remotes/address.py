"""A remote's address: the parts that are asked, without credentials, and whether the way there is private."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit, urlunsplit

_PRIVATE_SUFFIXES = (".local", ".lan", ".internal", ".home.arpa", ".localhost")


def _without_user(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def base(url: str) -> str:
    """The address that API paths are appended to: no user and password, query, fragment or last slash."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, _without_user(parts), parts.path.rstrip("/"), "", ""))


def root(url: str) -> str:
    """The server's root, where vLLM has /metrics and /version: `base` without a last `/v1`."""
    return base(url).removesuffix("/v1")


def notes(url: str) -> tuple[str, ...]:
    """What the user should know about this address."""
    parts = urlsplit(url)
    found = []
    if parts.username is not None:
        found.append("The user and password in the address are not used; set api_key_env instead.")
    if parts.scheme == "http" and not is_private(parts.hostname or ""):
        found.append(
            "Plain http to an address outside private networks: prompts and the key travel unencrypted. "
            "Use https."
        )
    return tuple(found)


def is_private(host: str) -> bool:
    """Loopback, link-local and private addresses, and names that only a local network resolves."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "." not in host.rstrip(".") or host.lower().rstrip(".").endswith(_PRIVATE_SUFFIXES)
    return address.is_private or address.is_loopback or address.is_link_local
