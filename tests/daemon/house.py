"""Serving over the real SmolLM2 file and an engine of the test's choice, as a daemon builds it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from appliance import settings
from appliance.catalog import ModelRef
from appliance.daemon import loading
from appliance.daemon.here import Here
from appliance.daemon.hooks import Hooks
from appliance.daemon.local import LocalSide
from appliance.daemon.machine.gpus import Gpus
from appliance.daemon.pool import Pool, Seat
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.serving import Serving
from appliance.engines import Build, Choice, EngineState
from appliance.gateway.ports import Served
from appliance.hardware import Machine
from appliance.monitor import Monitor
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey
from appliance.operations.models import Library
from appliance.paths import Paths
from appliance.settings import Governor
from appliance.units import GIB

ENTRY = """schema = 1
[models.smol]
family = "smol"
name = "Smol"
context = 8192
license = "apache-2.0"
use = ["chat"]
[[models.smol.variants]]
quant = "Q4_1"
source = {{ kind = "file", path = "{path}" }}
files = [{{ name = "{name}", role = "model", size = {size}, sha256 = "{sha256}" }}]
"""
SERVED = Served("smol", "smol:Q4_1", ("chat",), here=True)


@dataclass
class House:
    """A served model, everything that it told, and the lessons beside it."""

    library: Library
    pool: Pool
    serving: Serving
    local: LocalSide
    lessons: Lessons
    ref: ModelRef
    told: list[ServingSnapshot]
    moved: asyncio.Event
    """Set with each snapshot."""

    def states(self) -> list[EngineState]:
        """What others saw, repetitions left out."""
        seen: list[EngineState] = []
        for snapshot in self.told:
            if not seen or seen[-1] != snapshot.state:
                seen.append(snapshot.state)
        return seen

    async def until(self, look: Callable[[ServingSnapshot], bool], limit_s: float = 60.0) -> ServingSnapshot:
        """The first snapshot, from now on, for which `look` holds."""
        async with asyncio.timeout(limit_s):
            while not look(self.serving.snapshot):
                self.moved.clear()
                await self.moved.wait()
        return self.serving.snapshot

    async def chat(self) -> int:
        """One request to the engine itself; its status, 0 when the connection broke."""
        endpoint = self.serving.endpoint
        assert endpoint is not None
        connector = aiohttp.UnixConnector(endpoint.socket or "")
        headers = {"Authorization": f"Bearer {endpoint.key}"}
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        async with aiohttp.ClientSession(endpoint.base_url, connector=connector, headers=headers) as client:
            try:
                async with client.post("/v1/chat/completions", json=body) as answer:
                    await answer.read()
                    return answer.status
            except aiohttp.ClientError:
                return 0


def look_of(build: Build) -> Survey:
    """A machine with 32 GiB of RAM that has this engine alone."""
    machine = Machine(
        gpus=(), ram_total=32 * GIB, ram_available=24 * GIB, cores_physical=2, cores_logical=2,
        battery=None, cpu_name=None, notes=(),
    )  # fmt: skip
    return Survey(machine, (build,), Choice(build, "the only one"), None)


def looks(monkeypatch: pytest.MonkeyPatch, builds: Sequence[Build]) -> list[Survey]:
    """Each look at the machine finds the next of these builds, the last one for ever; what was found."""
    found: list[Survey] = []

    async def survey(*_: object, **__: object) -> Survey:
        found.append(look_of(builds[min(len(found), len(builds) - 1)]))
        return found[-1]

    monkeypatch.setattr(loading, "survey", survey)
    return found


def _list(paths: Paths, model: Path) -> None:
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
    text = ENTRY.format(path=model, name=model.name, size=model.stat().st_size, sha256=sha256)
    paths.user_catalog.write_text(text, encoding="utf-8")


@asynccontextmanager
async def house(
    paths: Paths,
    model: Path,
    *,
    reserve: str = "512MiB",
    gpus: Gpus | None = None,
    hooks: Hooks | None = None,
    **engine: object,
) -> AsyncIterator[House]:
    """Serving, started and stopped. `engine` are settings of the section."""
    await asyncio.to_thread(_list, paths, model)
    document = {"engine": engine, "planning": {"reserve": reserve}}
    library = Library.open(paths, settings.Settings.model_validate(document))
    ref = library.resolve("smol")
    await library.store.pull(ref)
    told: list[ServingSnapshot] = []
    lessons = Lessons(paths.learned)
    moved = asyncio.Event()

    def tell(_seat: Seat, _before: ServingSnapshot, snapshot: ServingSnapshot) -> None:
        told.append(snapshot)
        moved.set()

    monitor = Monitor(Governor())
    here = Here(lambda: library)
    await here.look()
    pool = Pool(library, monitor=monitor, lessons=lessons, here=here, on_change=tell, gpus=gpus, hooks=hooks)
    local = LocalSide(library, pool, here, monitor)
    serving = pool.seat(ref).serving
    pool.start()
    try:
        yield House(library, pool, serving, local, lessons, ref, told, moved)
    finally:
        await pool.stop()
        await here.close()
