"""A web server that misbehaves on demand. Each request plays the next act, without one the usual."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

Act = Callable[["Host", web.Request], Awaitable[web.StreamResponse]]
ETAG = '"one"'


@dataclass
class Host:
    """Serves `body` at every path."""

    body: bytes
    etag: str | None = ETAG
    acts: list[Act] = field(default_factory=list)
    """What the next requests get, in order."""
    usual: Act | None = None
    """What all further ones get; None = what they ask for."""
    flips: dict[int, int] = field(default_factory=dict)
    """Byte -> how often it is still sent with a flipped bit."""
    requests: list[web.Request] = field(default_factory=list)
    active: int = 0
    """Requests that are being answered now."""
    most: int = 0
    """How many were at once."""
    sent: int = 0
    """Body bytes handed to the network."""
    url: str = ""

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    @property
    def ranges(self) -> list[str | None]:
        """The Range header of each request."""
        return [request.headers.get("Range") for request in self.requests]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        act = self.acts.pop(0) if self.acts else self.usual or honest
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            return await act(self, request)
        finally:
            self.active -= 1

    def piece(self, body: bytes, start: int, stop: int) -> bytes:
        """What is sent of `body`."""
        found = bytearray(body[start:stop])
        for at in [at for at, left in self.flips.items() if left > 0 and start <= at < stop]:
            self.flips[at] -= 1
            found[at - start] ^= 1
        return bytes(found)


def wanted(request: web.Request, host: Host, size: int) -> tuple[int, int] | None:
    """The first byte that is wanted and the byte after the last; None = the whole body."""
    asked = request.headers.get("Range", "")
    condition = request.headers.get("If-Range")
    if not asked or (condition is not None and condition != host.etag):
        return None
    first, _, last = asked.removeprefix("bytes=").partition("-")
    return int(first), min(size, int(last) + 1) if last else size


async def send(
    host: Host,
    request: web.Request,
    body: bytes,
    *,
    pieces: int = 64 << 10,
    stop_at: int | None = None,
    hold: asyncio.Event | None = None,
    pause_s: float = 0.0,
    content_range: str | None = None,
    whole: bool = False,
    sized: bool = True,
    at_most: int | None = None,
) -> web.StreamResponse:
    """The wanted range of `body`. `stop_at` cuts the connection there, or waits for `hold` there.

    `at_most` shortens the range, `sized=False` leaves its length out.
    """
    asked = None if whole else wanted(request, host, len(body))
    start, stop = asked or (0, len(body))
    if at_most is not None:
        stop = min(stop, start + at_most)
    headers = {"Content-Length": str(stop - start)} if sized else {"Connection": "close"}
    if host.etag:
        headers["ETag"] = host.etag
    if asked or content_range:
        headers["Content-Range"] = content_range or f"bytes {start}-{stop - 1}/{len(body)}"
    response = web.StreamResponse(status=206 if asked or content_range else 200, headers=headers)
    await response.prepare(request)
    at = start
    while at < stop:
        end = min(at + pieces, stop if stop_at is None or at >= stop_at else stop_at)
        try:
            await response.write(host.piece(body, at, end))
        except ConnectionError:
            return response  # the client has what it wants, or is gone
        host.sent += end - at
        at = end
        if pause_s:
            await asyncio.sleep(pause_s)
        if stop_at is not None and at == stop_at and at < stop:
            if hold is None:
                if request.transport is not None:
                    request.transport.close()
                return response
            await hold.wait()
    return response


async def honest(host: Host, request: web.Request) -> web.StreamResponse:
    """Ranges as they should be."""
    return await send(host, request, host.body)


def cut(at: int) -> Act:
    """The connection drops when the body is sent up to `at`."""
    return lambda host, request: send(host, request, host.body, stop_at=at)


def drop(after: int) -> Act:
    """The connection drops when so many bytes of the answer are sent."""

    async def act(host: Host, request: web.Request) -> web.StreamResponse:
        if after == 0 and request.transport is not None:
            request.transport.close()
        start, _ = wanted(request, host, len(host.body)) or (0, 0)
        return await send(host, request, host.body, stop_at=start + after)

    return act


def held(at: int, hold: asyncio.Event) -> Act:
    """Waits at byte `at` until the event is set."""
    return lambda host, request: send(host, request, host.body, stop_at=at, hold=hold)


def throttled(pause_s: float, pieces: int = 64 << 10) -> Act:
    """A piece, then a pause."""
    return lambda host, request: send(host, request, host.body, pause_s=pause_s, pieces=pieces)


def capped(n_bytes: int) -> Act:
    """206 with less than was asked for."""
    return lambda host, request: send(host, request, host.body, at_most=n_bytes)


async def whole(host: Host, request: web.Request) -> web.StreamResponse:
    """200 and the whole body, also when a range was asked for."""
    return await send(host, request, host.body, whole=True)


async def truncated(host: Host, request: web.Request) -> web.StreamResponse:
    """The whole body without its length, ended early as if it were complete."""
    return await send(host, request, host.body, whole=True, sized=False, at_most=len(host.body) // 2)


async def silent(host: Host, request: web.Request) -> web.StreamResponse:
    """Accepts the request and says nothing, until the server is stopped."""
    await asyncio.Event().wait()
    return web.Response()


def wrong_range(content_range: str) -> Act:
    """206 with another Content-Range than was asked for."""
    return lambda host, request: send(host, request, host.body, content_range=content_range)


async def corrupt(host: Host, request: web.Request) -> web.StreamResponse:
    """One flipped bit near the end, same size."""
    body = bytearray(host.body)
    body[-10] ^= 1
    return await send(host, request, bytes(body))


async def longer(host: Host, request: web.Request) -> web.StreamResponse:
    """More than pinned, without a length."""
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(host.body + b"more")
    return response


async def shorter(host: Host, request: web.Request) -> web.StreamResponse:
    """A complete answer of another size."""
    return web.Response(body=host.body[:-1])


def status(code: int, **headers: str) -> Act:
    """An error; `Retry_After` becomes the header Retry-After."""

    async def act(host: Host, request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return act


def crowded(limit: int, refusal: Act, usual: Act = honest) -> Act:
    """`usual`, but `refusal` for a request beyond `limit` at once."""

    async def act(host: Host, request: web.Request) -> web.StreamResponse:
        return await (refusal if host.active > limit else usual)(host, request)

    return act


def says(text: bytes, content_type: str = "application/octet-stream") -> Act:
    """200 with another body."""

    async def act(host: Host, request: web.Request) -> web.StreamResponse:
        return web.Response(body=text, content_type=content_type)

    return act


async def encoded(host: Host, request: web.Request) -> web.StreamResponse:
    """Compressed, though identity was asked for."""
    return web.Response(body=gzip.compress(host.body, 1), headers={"Content-Encoding": "gzip"})


async def compressed(host: Host, request: web.Request) -> web.StreamResponse:
    """Compressed, and it does not say so."""
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(gzip.compress(host.body, 1))
    return response


def redirect(to: str, **headers: str) -> Act:
    """302 to another address."""
    return status(302, Location=to, **headers)


def change(body: bytes, etag: str | None) -> Act:
    """The file is replaced, and this request and all later ones get the new one."""

    async def act(host: Host, request: web.Request) -> web.StreamResponse:
        host.body, host.etag = body, etag
        return await honest(host, request)

    return act
