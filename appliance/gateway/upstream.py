"""Opening a request to an engine or a remote, and naming what goes wrong with it.

Each request has a connection of its own that is closed afterwards: llama-server closes after a stream
although it promised to keep the connection, and closing is how both kinds of engine learn that nobody
listens.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp

from appliance.engines import Endpoint
from appliance.gateway import failures
from appliance.gateway.chunks import dumps
from appliance.gateway.failures import UpstreamError, UpstreamFailed, UpstreamRefused
from appliance.gateway.limits import Limits
from appliance.gateway.ports import RemoteTarget
from appliance.remotes import retry_after_s

_ERROR_BYTES = 64 * 1024


def session(limits: Limits, socket: str | None = None) -> aiohttp.ClientSession:
    """A client without pool, cookies, proxies from the environment, or a limit on the whole time."""
    if socket is None:
        connector: aiohttp.BaseConnector = aiohttp.TCPConnector(force_close=True, limit=0)
    else:
        connector = aiohttp.UnixConnector(socket, force_close=True, limit=0)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(
            total=None, connect=None, sock_connect=limits.connect_s, sock_read=limits.idle_s
        ),
        trust_env=False,
    )


@asynccontextmanager
async def open_local(
    tcp: aiohttp.ClientSession,
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, Any],
    request_id: str,
    limits: Limits,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The engine's answer with status 200. Raises UpstreamFailed or UpstreamRefused."""
    key = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    url = endpoint.base_url + path
    if endpoint.socket is None:
        async with _post(tcp, url, body, {**_headers(request_id), **key}) as response:
            yield response
        return
    async with (
        session(limits, endpoint.socket) as own,
        _post(own, url, body, {**_headers(request_id), **key}) as response,
    ):
        yield response


@asynccontextmanager
async def open_remote(
    tcp: aiohttp.ClientSession, target: RemoteTarget, path: str, body: Mapping[str, Any], request_id: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The remote's answer with status 200; `body` is already in its words.

    Called from one place only, behind the check that the request may leave (journey.py).
    """
    url = target.base_url.rstrip("/") + path.removeprefix("/v1")
    async with _post(tcp, url, body, {**_headers(request_id), **target.headers()}, target.name) as response:
        yield response


async def read(response: aiohttp.ClientResponse) -> bytes:
    """The next bytes; b"" at the end. Raises UpstreamFailed."""
    with _named():
        return await response.content.readany()


async def read_json(response: aiohttp.ClientResponse, limit: int) -> dict[str, Any]:
    """A whole JSON reply of at most `limit` bytes. Raises UpstreamFailed."""
    raw = await _read_all(response, limit)
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict) or reply.get("error"):
        raise UpstreamFailed("5xx", "The reply is not what the API promises.", answered=True)
    return reply


async def _read_all(response: aiohttp.ClientResponse, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while data := await read(response):
        parts.append(data)
        size += len(data)
        if size > limit:
            raise UpstreamFailed("5xx", f"The reply has more than {limit} bytes.", answered=True)
    return b"".join(parts)


@asynccontextmanager
async def _post(
    client: aiohttp.ClientSession,
    url: str,
    body: Mapping[str, Any],
    headers: Mapping[str, str],
    remote: str | None = None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """`remote`: its name; None for the engine."""
    secret = headers.get("Authorization", "").removeprefix("Bearer ")
    with _named():
        response = await client.post(url, data=dumps(body), headers=headers, allow_redirects=False)
    try:
        if response.status != 200:
            raise await _failure(response, "local" if remote is None else "remote")
        yield response
    except UpstreamError as error:
        if isinstance(error, UpstreamFailed) and error.outcome == "reset":
            error.reword(_cut(remote, started=error.started))
        error.conceal(secret)
        raise
    finally:
        response.close()  # not release: the engine must see that nobody reads on


def _headers(request_id: str) -> dict[str, str]:
    """Nothing of the client's own headers goes on: no cookie, no key, no X-Conversation-Id."""
    return {
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "X-Request-Id": request_id,
        "User-Agent": "llama-appliance",
    }


async def _failure(response: aiohttp.ClientResponse, side: str) -> UpstreamFailed | UpstreamRefused:
    try:
        raw = await _read_all(response, _ERROR_BYTES)
    except UpstreamFailed:
        raw = b""
    told = failures.read(response.status, raw)
    if side == "local":
        told = told.judged()
    status = told.status
    wait = retry_after_s(response.headers.get("Retry-After"))
    if status == 429:
        return UpstreamFailed("4xx", told.message, answered=True, told=told, retry_after_s=wait)
    if 400 <= status < 500 or status == 501:
        return UpstreamRefused(told, side=side, retry_after_s=wait)
    outcome = "loading" if status == 503 and told.type == "unavailable_error" else "5xx"
    return UpstreamFailed(outcome, told.message, answered=status != 503, told=told, retry_after_s=wait)


@contextmanager
def _named() -> Iterator[None]:
    """aiohttp's exceptions as UpstreamFailed, in the words of the breaker."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
        raise UpstreamFailed("refused", f"it can't be reached{_reason(error)}") from None
    except TimeoutError as error:
        # Our own asyncio.timeout cancels instead; it never shows up as a TimeoutError in here.
        raise UpstreamFailed("timeout", f"it did not answer in time{_reason(error)}") from None
    except (aiohttp.ClientError, ConnectionError, OSError) as error:
        raise UpstreamFailed("reset", f"the connection broke{_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """The system's words in brackets, where there are any: the name of a class tells a person nothing."""
    inner = getattr(error, "os_error", None)
    return f" ({inner.strerror})" if isinstance(inner, OSError) and inner.strerror else ""


def _cut(remote: str | None, *, started: bool) -> str:
    """For people: a connection broke after the headers of the answer."""
    when = "in the middle of the reply" if started else "before the reply"
    if remote is not None:
        return f"the connection to {remote} broke {when}"
    return f"the engine ended or was stopped {when}; it is started again by itself, so try again"
