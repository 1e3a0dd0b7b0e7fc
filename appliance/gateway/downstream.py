"""The client's side of a stream: status and headers wait until a side is settled or the hold limit has
passed; after that the client hears something at least every `ping_s`."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

from aiohttp import web

from appliance.gateway.chunks import dumps
from appliance.gateway.course import Course
from appliance.gateway.limits import Limits
from appliance.gateway.shapes import Problem

_PING = b": ping\n\n"


class ClientGone(Exception):
    """The client closed the connection, or takes nothing any more."""


class Downstream:
    """One event stream. Use it as an async context; one task inside keeps the client awake."""

    def __init__(self, request: web.Request, course: Course, limits: Limits) -> None:
        self._request = request
        self._course = course
        self._limits = limits
        self._lock = asyncio.Lock()
        self._out = asyncio.Event()
        self._response = web.StreamResponse()
        self._written_at = 0.0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def committed(self) -> bool:
        """Headers are out: an error can't have a status of its own any more."""
        return self._out.is_set()

    async def unsettled(self) -> bool:
        """Whether a plain response may still go out; from here on the keeper sends none of its own."""
        async with self._lock:
            if not self.committed and self._keeper is not None:
                self._keeper.cancel()
            return not self.committed

    async def settle(self) -> None:
        """A side answers: send the headers that say which, unless `pending` ones are out.

        Raises ClientGone.
        """
        async with self._lock:
            if not self.committed:
                await self._commit(pending=False)

    async def write(self, events: bytes) -> None:
        """Whole events only: pings go in between. Waits while the client is slow. Raises ClientGone."""
        if events:
            async with self._lock:
                await self._write(events)

    async def fail(self, problem: Problem) -> web.StreamResponse:
        """End a committed stream with an error event: no finish_reason, no [DONE]. Raises ClientGone."""
        await self.write(b"data: " + dumps(problem.body(self._course.appliance())) + b"\n\n")
        return await self.close()

    async def close(self) -> web.StreamResponse:
        """End the stream."""
        try:
            async with asyncio.timeout(self._limits.write_s):
                await self._response.write_eof()
        except (ConnectionError, TimeoutError):
            raise ClientGone from None
        return self._response

    async def __aenter__(self) -> Self:
        self._keeper = asyncio.create_task(self._keep(), name=f"keeper {self._course.request_id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})

    async def _keep(self) -> None:
        try:
            held = time.perf_counter() - self._course.arrived
            await self._hold(max(0.0, self._limits.hold_s - held))
            while True:
                due = self._written_at + self._limits.ping_s - time.perf_counter()
                if due > 0:
                    await asyncio.sleep(due)
                else:
                    await self.write(_PING)
        except ClientGone:
            return  # the handler is cancelled, or finds out with its next write

    async def _hold(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._out.wait()
        except TimeoutError:
            async with self._lock:
                if not self.committed:
                    await self._commit(pending=True)
                    await self._write(_PING)

    async def _commit(self, *, pending: bool) -> None:
        self._out.set()  # before the first await: from here on the status can't change
        headers = self._response.headers
        headers.update(self._course.headers(pending=pending))
        headers["Content-Type"] = "text/event-stream; charset=utf-8"
        headers["Cache-Control"] = "no-cache"
        headers["X-Accel-Buffering"] = "no"
        self._written_at = time.perf_counter()
        try:
            await self._response.prepare(self._request)
        except ConnectionError:
            raise ClientGone from None

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._limits.write_s):
                await self._response.write(data)
        except (ConnectionError, TimeoutError):
            raise ClientGone from None
        self._written_at = time.perf_counter()
