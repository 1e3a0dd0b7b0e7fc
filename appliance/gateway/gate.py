"""What the handlers of one gateway share, and the one task that writes the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from appliance.gateway import upstream
from appliance.gateway.closing import Closing
from appliance.gateway.course import Course
from appliance.gateway.limits import Limits
from appliance.gateway.metrics import Metrics
from appliance.gateway.ports import Ports, Served
from appliance.gateway.receipts import Receipts
from appliance.gateway.speeds import Speeds
from appliance.journal import Row
from appliance.routing import Features, View

log = logging.getLogger("appliance.gateway")
_UNWRITTEN = 10_000
"""Rows that may wait for the disk; beyond that the newest are lost, with a line in the log."""


class Gate:
    """The shared parts. Its tasks and sockets live from `running` on."""

    def __init__(self, ports: Ports, limits: Limits) -> None:
        self.local = ports.local
        self.remotes = ports.remotes
        self.host = ports.host
        self.privacy = ports.privacy
        self.recorder = ports.recorder
        self._machine = ports.machine
        self.limits = limits
        self.metrics = Metrics(ports.machine)
        self.closing = Closing()
        self.speeds = Speeds()
        self.receipts = Receipts(limits.receipts)
        self._journal = ports.journal
        self._told = ports.requests
        self._here = 0
        self._rows: asyncio.Queue[Row] = asyncio.Queue(_UNWRITTEN)
        self._tcp: aiohttp.ClientSession | None = None

    @property
    def tcp(self) -> aiohttp.ClientSession:
        """The client for upstreams on TCP."""
        if self._tcp is None:
            raise RuntimeError("the gateway is not running")
        return self._tcp

    def view(self, served: Served, features: Features) -> View:
        """The machine now, as the router sees it for this request."""
        settings, machine = self.host.settings(), self._machine()
        ref, local = served.ref, self.local.view(served)
        if local is not None:
            local = self.speeds.local(ref, features, local, self.local.endpoint(served))
        return View(
            policy=settings.routing.policy,
            max_wait_s=settings.routing.max_wait,
            goal_ttft_s=settings.goals.ttft,
            local=local,
            remotes=tuple(self.speeds.remote(ref, features, remote) for remote in self.remotes.views(served)),
            goal_decode_per_s=settings.goals.decode,
            power="unknown" if machine is None else machine.power,
            battery=settings.governor.battery,
        )

    def answers(self, served: Served) -> bool:
        """Whether a request for this model would find a side, now or once it is up again."""
        policy, local = self.host.settings().routing.policy, self.local.view(served)
        if local is not None and local.serves and policy != "remote-only":
            return True
        return policy != "local-only" and any(remote.has_model for remote in self.remotes.views(served))

    def began(self) -> None:
        """An inference request arrived."""
        self.metrics.began()
        self._here += 1
        self._told(self._here)

    def ended(self, course: Course) -> None:
        """It is over."""
        self._here -= 1
        self._told(self._here)
        self.metrics.ended(course)
        self.record(course.row())

    def record(self, row: Row) -> None:
        """Hand a row to the journal; no request waits for the disk."""
        try:
            self._rows.put_nowait(row)
        except asyncio.QueueFull:
            log.warning("the journal is too slow: request %s is not recorded", row.request_id)

    def shut_down(self, reason: str = "The appliance is stopping.", *, grace_s: float | None = None) -> None:
        """Take nothing new, and end what runs within `grace_s` (None: `Limits.grace_s`): streams with an
        error event, plain and queued requests with a 503. The application calls it when its runner cleans
        up; calling it before is harmless, and it can be called again to hurry."""
        self.closing.begin(reason, self.limits.grace_s if grace_s is None else grace_s)

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """An aiohttp cleanup context."""
        self._tcp = upstream.session(self.limits)
        writer = asyncio.create_task(self._write_rows(), name="journal writer")
        try:
            yield
        finally:
            await self._rows.join()
            writer.cancel()
            await asyncio.wait({writer})
            await self._tcp.close()

    async def _write_rows(self) -> None:
        while True:
            row = await self._rows.get()
            try:
                await self._journal.record(row)
            except Exception:
                log.exception("the journal could not keep request %s", row.request_id)
            finally:
                self._rows.task_done()
