"""A daemon without engines: the ports over two scripted upstreams, one as the engine, one as the remote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
from aiohttp import web

from appliance.engines import Endpoint
from appliance.errors import RemoteError, UnknownModel, UsageError
from appliance.gateway.admission import Admission
from appliance.gateway.app import make_app, make_runner
from appliance.gateway.limits import Limits
from appliance.gateway.ports import Conditions, Outcome, Ports, ReportedOutcome, Served
from appliance.journal import Row
from appliance.monitor import MonitorSnapshot
from appliance.routing import LocalView, Policy, RemoteView, ThermalState
from appliance.settings import Routing, Server, Settings
from tests.gateway.upstream import Upstream, upstream

LOCAL_MODEL = "tiny:Q4_1"
REMOTE_MODEL = "org/Tiny-FP8"
TINY = Served("tiny", LOCAL_MODEL, ("chat",), here=True)
EMBEDDER = Served("embedder", "embedder:F16", ("embedding",), here=True)


class FakeLocal:
    """One engine, `tiny`."""

    def __init__(self, engine: Upstream, slots: int, max_queue: int) -> None:
        self.engine = engine
        self.queue = Admission(slots, max_queue)
        self.state = "ready"
        self.thermal: ThermalState = "cool"
        self.factor = 1.0
        self.elsewhere: set[str] = set()
        """Refs that lie here and aren't served."""
        self.ctx: int | None = 4096
        self.detail = ""
        self.codes: tuple[str, ...] = ()
        self.outcomes: list[Outcome] = []
        self.misses: list[str] = []
        self.wanting = 0
        self.now = Conditions("cool", "ac", "llama-server b1/31/f16")
        self.loaded = asyncio.Event()
        self.url: str | None = None
        self.own: Endpoint | None = None
        """A real engine instead of the scripted one."""

    def resolve(self, name: str | None) -> Served:
        for served in (TINY, EMBEDDER):
            if name in (served.id, served.ref) or (name is None and served is TINY):
                return served
        raise UnknownModel(f"There is no model {str(name)!r}.", hint="The nearest: tiny, embedder.")

    def view(self, served: Served) -> LocalView | None:
        if served.ref in self.elsewhere:
            return None
        now, easing = self.queue.snapshot, self.queue.easing
        return LocalView(
            self.state, now.slots, now.running, now.waiting, now.max_queue, now.predicted_wait,
            self.ctx, self.thermal, self.factor, serves=True, detail=self.detail,
            eases=easing.why if easing is not None else "", batch_waiting=now.lanes["batch"],
            batch_wait_s=now.batch_wait, at_once=easing.at_once if easing is not None else None,
        )  # fmt: skip

    def endpoint(self, served: Served) -> Endpoint | None:
        if self.state not in ("ready", "busy"):
            return None
        return self.own or Endpoint(self.url or self.engine.url, None, "engine-key", 1)

    async def ready(self, served: Served) -> Endpoint | None:
        if self.endpoint(served) is None and self.state in ("cold", "starting", "loading"):
            await self.loaded.wait()
        return self.endpoint(served)

    def admission(self, served: Served) -> Admission | None:
        return self.queue

    def busy(self, served: Served) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def wanted(self, served: Served) -> Iterator[None]:
        self.wanting += 1
        try:
            yield
        finally:
            self.wanting -= 1

    def missed(self, served: Served) -> None:
        self.misses.append(served.ref)

    def degraded(self, served: Served) -> tuple[str, ...]:
        return self.codes

    def finished(self, served: Served, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def conditions(self, served: Served) -> Conditions:
        return self.now

    def models(self) -> Sequence[Served]:
        return (TINY, EMBEDDER)


class FakeRemote:
    """One remote, `vllm`, with a mapping by id or by `id:QUANT`, like the real one's."""

    name = "vllm"

    def __init__(self, server: Upstream) -> None:
        self.server = server
        self.url: str | None = None
        self.reports: list[ReportedOutcome] = []
        self.wishes: list[float | None] = []
        """The `retry_after_s` of each report."""
        self.mapping = {"tiny": REMOTE_MODEL, "embedder": REMOTE_MODEL}
        self.key = "remote-key"
        self.up = False
        self.max_model_len: int | None = 32_768

    @property
    def base_url(self) -> str:
        return f"{self.url or self.server.url}/v1"

    def translate(self, path: str, body: dict[str, Any], *, local_id: str) -> dict[str, Any]:
        if body.get("untranslatable"):
            raise UsageError("`untranslatable` has no meaning there.")
        model = self.model_for(local_id)
        if model is None:
            raise RemoteError(f"The remote has no model for {local_id}.")
        return {**body, "model": model}

    def model_for(self, local_id: str) -> str | None:
        return self.mapping.get(local_id) or self.mapping.get(local_id.partition(":")[0])

    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def report(self, outcome: ReportedOutcome, *, retry_after_s: float | None = None) -> None:
        self.reports.append(outcome)
        self.wishes.append(retry_after_s)


class FakeRemotes:
    def __init__(self, remote: FakeRemote) -> None:
        self.remote = remote

    def views(self, served: Served) -> tuple[RemoteView, ...]:
        remote = self.remote
        has_model = remote.model_for(served.ref) is not None
        return (RemoteView(remote.name, remote.up, has_model, remote.max_model_len, ""),)

    def target(self, name: str) -> FakeRemote:
        assert name == self.remote.name
        return self.remote


class FakeJournal:
    def __init__(self) -> None:
        self.rows: asyncio.Queue[Row] = asyncio.Queue()

    async def record(self, row: Row) -> None:
        self.rows.put_nowait(row)


@dataclass
class FakeHost:
    config: Settings = field(default_factory=Settings)
    state: dict[str, Any] = field(default_factory=lambda: {"status": "ok"})

    def settings(self) -> Settings:
        return self.config

    def health(self) -> Mapping[str, Any]:
        return self.state


@dataclass
class House:
    """Everything that a test turns or looks at."""

    engine: Upstream
    far: Upstream
    local: FakeLocal
    remote: FakeRemote
    journal: FakeJournal
    host: FakeHost
    http: aiohttp.ClientSession
    runner: web.AppRunner
    url: str = ""
    machine: MonitorSnapshot = field(default_factory=MonitorSnapshot)

    def configure(
        self, *, policy: Policy = "local-first", max_wait: float = 8.0, hosts: tuple[str, ...] = ()
    ) -> None:
        """Change settings while it runs."""
        self.host.config = Settings(
            routing=Routing(policy=policy, max_wait=max_wait), server=Server(allowed_hosts=hosts)
        )

    def post(
        self, path: str = "/v1/chat/completions", headers: Mapping[str, str] | None = None, **body: Any
    ) -> Any:
        """A request as aiohttp's context manager."""
        if path.endswith("/chat/completions"):
            body = {"messages": [{"role": "user", "content": "hi"}], **body}
        return self.http.post(self.url + path, json=body, headers=headers or {})

    async def row(self) -> Row:
        """The next row of the journal."""
        async with asyncio.timeout(5):
            return await self.journal.rows.get()


@asynccontextmanager
async def house(
    limits: Limits | None = None, *, slots: int = 1, max_queue: int = 2, shutdown_timeout_s: float = 0.2
) -> AsyncIterator[House]:
    """A running gateway."""
    async with (
        upstream(LOCAL_MODEL) as engine,
        upstream(REMOTE_MODEL) as far,
        aiohttp.ClientSession() as http,
    ):
        local, remote = FakeLocal(engine, slots, max_queue), FakeRemote(far)
        journal, host = FakeJournal(), FakeHost()
        ports = Ports(local, FakeRemotes(remote), journal, host, machine=lambda: made.machine)
        runner = make_runner(make_app(ports, limits=limits or short()), shutdown_timeout_s=shutdown_timeout_s)
        made = House(engine, far, local, remote, journal, host, http, runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield made
        finally:
            await runner.cleanup()


async def until(holds: Callable[[], bool], seconds: float = 1.0) -> None:
    """Returns as soon as `holds()`; TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - other people's state, which has no event
            await asyncio.sleep(0.001)


def short(**limits: Any) -> Limits:
    """Limits for tests, with some of them short."""
    return replace(Limits(connect_s=2.0, first_token_s=20.0, notice_s=0.05), **limits)
