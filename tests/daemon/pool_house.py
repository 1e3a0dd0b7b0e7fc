"""A pool as a daemon builds it, over real model files and an engine of the test's choice."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from appliance import settings
from appliance.catalog import ModelRef
from appliance.daemon import loading
from appliance.daemon.here import Here
from appliance.daemon.hooks import Hooks
from appliance.daemon.local import LocalSide
from appliance.daemon.pool import Pool, Seat, fitting, mover
from appliance.daemon.served import ServingSnapshot
from appliance.engines import Build, Endpoint
from appliance.engines.pool import Turn
from appliance.gateway.ports import Served
from appliance.monitor import Monitor
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey
from appliance.operations.models import Library
from appliance.paths import Paths
from appliance.settings import Governor
from tests.daemon.house import look_of

QUICK = Turn(least_s=0.5, swaps=1.0, most_s=2.0, linger_s=0.1, most_linger_s=0.1)
"""Turns of a test."""


def entry(name: str, file: Path) -> str:
    """A model of the user's own catalog."""
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    return f"""[models.{name}]
family = "{name}"
name = "{name}"
context = 8192
license = "apache-2.0"
use = ["chat"]
[[models.{name}.variants]]
quant = "Q4"
source = {{ kind = "file", path = {json.dumps(str(file))} }}
files = [{{ name = "{file.name}", role = "model", size = {file.stat().st_size}, sha256 = "{sha256}" }}]
"""


@dataclass
class PoolHouse:
    """The pool, the gateway's view of it, and what happened."""

    library: Library
    pool: Pool
    local: LocalSide
    here: Here
    loads: list[str] = field(default_factory=list)
    """Refs, each time an engine became ready."""
    events: list[tuple[str, str]] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def ref(self, name: str) -> ModelRef:
        return self.library.resolve(name)

    def served(self, name: str) -> Served:
        return self.local.resolve(name)

    def state(self, name: str) -> str:
        seat = self.pool.find(self.ref(name).ref)
        return "absent" if seat is None else seat.serving.snapshot.state

    def resident(self) -> set[str]:
        """Names of the models with a ready engine."""
        return {seat.ref.id for seat in self.pool if seat.state == "ready"}

    def budget(self, memory: str) -> None:
        """Change `models.memory`, as `config set` does."""
        document = self.library.settings.model_dump(mode="json")
        document["models"]["memory"] = memory
        self.library = self.library.using(settings.Settings.model_validate(document))
        self.pool.use(self.library)
        self.local.use(self.library)

    def told(self, seat: Seat, before: ServingSnapshot, now: ServingSnapshot) -> None:
        if now.state == "ready" and before.state in ("starting", "loading"):
            self.loads.append(seat.ref.id)
        self.moved.set()

    async def until(self, look: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Wait, bounded, until `look` holds."""
        async with asyncio.timeout(limit_s):
            while not look():
                self.moved.clear()
                with contextlib.suppress(TimeoutError):  # not all that may be looked at says that it moved
                    async with asyncio.timeout(0.05):
                        await self.moved.wait()

    async def ask(self, name: str, *, tokens: int = 2, hold: Awaitable[object] | None = None) -> int:
        """One request on the way that the gateway takes it; its HTTP status, 503 when no engine comes.

        `hold`: awaited inside the engine, before the request is sent.
        """
        served = self.served(name)
        with self.local.wanted(served):
            queue = self.local.admission(served)
            if queue is None:
                return 503
            with queue.enter("interactive") as place:
                await place.wait(None)
                endpoint = self.local.endpoint(served) or await self.local.ready(served)
                if endpoint is None:
                    return 503
                with self.local.busy(served):
                    if hold is not None:
                        await hold
                    status = await chat(endpoint, tokens)
                place.completed = True
                return status


async def chat(endpoint: Endpoint, tokens: int = 2, text: str = "Hi") -> int:
    """One chat with the engine itself; 0 when the connection broke."""
    connector = aiohttp.UnixConnector(endpoint.socket or "")
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens}
    async with aiohttp.ClientSession(endpoint.base_url, connector=connector, headers=headers) as client:
        try:
            async with client.post("/v1/chat/completions", json=body) as answer:
                await answer.read()
                return answer.status
        except aiohttp.ClientError:
            return 0


def sees(monkeypatch: pytest.MonkeyPatch, build: Build) -> None:
    """Each look at the machine finds this build alone, and 32 GiB of RAM."""

    async def survey(*_: object, **__: object) -> Survey:
        return look_of(build)

    for room in (loading, fitting, mover):
        monkeypatch.setattr(room, "survey", survey)


@asynccontextmanager
async def pool_house(
    paths: Paths,
    models: Mapping[str, Path],
    *,
    turn: Turn = QUICK,
    hooks: Hooks | None = None,
    sections: Mapping[str, Mapping[str, object]] | None = None,
    absent: Sequence[str] = (),
) -> AsyncIterator[PoolHouse]:
    """Started and stopped. `sections` are settings; `absent`: models of the catalog that are not here."""
    catalog = "schema = 1\n" + "".join(entry(name, file) for name, file in models.items())
    await asyncio.to_thread(paths.user_catalog.write_text, catalog, encoding="utf-8")
    document = {"engine": {"ctx": 1024, "parallel": 2}, **(sections or {})}
    library = Library.open(paths, settings.Settings.model_validate(document))
    for name in models:
        if name not in absent:
            await library.store.pull(library.resolve(name))
    monitor, here = Monitor(Governor()), Here(lambda: library)
    await here.look()
    told: list[PoolHouse] = []
    pool = Pool(
        library, monitor=monitor, lessons=Lessons(paths.learned), here=here, turn=turn, hooks=hooks,
        on_change=lambda *change: told[0].told(*change),
        note=lambda kind, ref, _text: told[0].events.append((kind, ref.partition(":")[0])),
    )  # fmt: skip
    home = PoolHouse(library, pool, LocalSide(library, pool, here, monitor), here)
    told.append(home)
    pool.start()
    try:
        yield home
    finally:
        await pool.stop()
        await here.close()
