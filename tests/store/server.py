"""A web server that misbehaves on demand. Each request plays the next act; without one it behaves well."""

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
    requests: list[web.Request] = field(default_factory=list)
    sent: int = 0
    """Body bytes handed to the network."""
    url: str = ""
    bodies: dict[str, bytes] = field(default_factory=dict)
    """Further bodies, by the last part of their path."""

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
        act = self.acts.pop(0) if self.acts else honest
        return await act(self, request)


def _wanted(request: web.Request, host: Host, size: int) -> tuple[int, int] | None:
    """The first byte that is wanted and the byte after the last; None = the whole body."""
    wanted = request.headers.get("Range", "")
    condition = request.headers.get("If-Range")
    if not wanted or (condition is not None and condition != host.etag):
        return None
    first, _, last = wanted.removeprefix("bytes=").partition("-")
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
) -> web.StreamResponse:
    """The wanted range of `body`. `stop_at` cuts the connection there, or waits for `hold` there."""
    wanted = None if whole else _wanted(request, host, len(body))
    start, stop = wanted or (0, len(body))
    headers = {"Content-Length": str(stop - start), "Accept-Ranges": "bytes"}
    if host.etag:
        headers["ETag"] = host.etag
    if wanted or content_range:
        headers["Content-Range"] = content_range or f"bytes {start}-{stop - 1}/{len(body)}"
    response = web.StreamResponse(status=206 if wanted or content_range else 200, headers=headers)
    await response.prepare(request)
    at = start
    while at < stop:
        end = min(at + pieces, stop if stop_at is None or at >= stop_at else stop_at)
        await response.write(body[at:end])
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
    return await send(host, request, host.bodies.get(request.path.rpartition("/")[2], host.body))


def cut(at: int) -> Act:
    """The connection drops when the body is sent up to `at`."""
    return lambda host, request: send(host, request, host.body, stop_at=at)


def held(at: int, hold: asyncio.Event) -> Act:
    """Waits at byte `at` until the event is set."""
    return lambda host, request: send(host, request, host.body, stop_at=at, hold=hold)


def throttled(pause_s: float) -> Act:
    """64 KiB, then a pause."""
    return lambda host, request: send(host, request, host.body, pause_s=pause_s)


async def whole(host: Host, request: web.Request) -> web.StreamResponse:
    """200 and the whole body, also when a range was asked for."""
    return await send(host, request, host.body, whole=True)


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
