"""One HTTP client for every transfer: system trust store, proxies, redirects under our own rules."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

import appliance
from appliance.errors import DownloadError
from appliance.store import responses
from appliance.store.types import Limits

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The response that ended a chain of redirects."""

    response: aiohttp.ClientResponse
    redirected: bool
    stated: dict[str, str]
    """Headers `X-Repo-Commit` and `X-Linked-*` from anywhere in the chain."""


class Client:
    """Use as `async with Client(limits) as client`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        context = await asyncio.to_thread(_trust)  # reading the certificates takes tens of milliseconds
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._limits.connect_s, sock_read=self._limits.silence_s
            ),
            headers={"Accept-Encoding": "identity", "User-Agent": f"llama-appliance/{appliance.__version__}"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_BUFFER,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @contextlib.asynccontextmanager
    async def get(self, url: str, headers: dict[str, str], token: str | None) -> AsyncIterator[Answer]:
        """GET with redirects. `token` goes to the origin of `url` only, never further.

        Raises DownloadError for redirects that must not be followed, and what aiohttp raises.
        """
        if self._session is None:
            raise RuntimeError("the client is not open")
        here, first, stated = URL(url), URL(url), dict[str, str]()
        for hop in range(self._limits.redirects + 1):
            sent = dict(headers)
            if token and here.origin() == first.origin():
                sent["Authorization"] = f"Bearer {token}"
            proxy, auth = await asyncio.to_thread(_proxy_for, here)
            async with self._session.get(
                here, headers=sent, allow_redirects=False, proxy=proxy, proxy_auth=auth
            ) as response:
                names = ("X-Repo-Commit", "X-Linked-Etag", "X-Linked-Size")
                stated |= {name: response.headers[name] for name in names if name in response.headers}
                if response.status not in _REDIRECTS:
                    yield Answer(response, hop > 0, stated)
                    return
                here = _next(here, response.headers.get("Location"))
        raise DownloadError(f"{first.host} redirects in circles.", hint="Check the address or the proxy.")


def _next(here: URL, location: str | None) -> URL:
    try:
        there = here.join(URL(location)) if location else None
    except ValueError:
        there = None
    if there is None or there.scheme not in ("http", "https") or not there.host:
        raise DownloadError(f"{here.host} redirects to nowhere.", hint="Check the address or the proxy.")
    if here.scheme == "https" and there.scheme == "http":
        raise DownloadError(
            f"{here.host} redirects from https to http.",
            cause=f"The target is {responses.shown(str(there))}.",
            hint="An encrypted transfer is never continued in the open.",
        )
    return there


def _trust() -> ssl.SSLContext:
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _proxy_for(url: URL) -> tuple[URL | None, aiohttp.BasicAuth | None]:
    """The proxy that the environment or the system names (aiohttp's own way would also use ~/.netrc)."""
    if url.host is None or urllib.request.proxy_bypass(url.host):
        return None, None
    proxies = urllib.request.getproxies()
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found:
        return None, None
    proxy = URL(found if "://" in found else f"http://{found}")
    if proxy.scheme not in ("http", "https"):
        raise DownloadError(
            f"The proxy {proxy.scheme}://{proxy.host} can't be used.",
            hint="Only HTTP proxies work; set HTTPS_PROXY to one, or NO_PROXY for this host.",
        )
    auth = aiohttp.BasicAuth(proxy.user, proxy.password or "") if proxy.user else None
    return proxy.with_user(None), auth
