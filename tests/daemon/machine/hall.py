"""A house whose machine a test changes: its GPUs, what the engine lists, and the clock by which it looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from appliance.catalog import ModelRef
from appliance.daemon import loading
from appliance.daemon.machine.gpus import Gpus
from appliance.daemon.machine.watch import MachineWatch
from appliance.daemon.status import notes
from appliance.engines import Build, Choice, Engine, Launch
from appliance.engines.discovery import asked_again
from appliance.hardware import Gpu, Machine
from appliance.monitor import MonitorSnapshot
from appliance.operations.machine.survey import Note, Survey
from appliance.paths import Paths
from tests.daemon.house import SERVED, House, house, look_of
from tests.engines.fake_engine import Script, install, starts

CARD = "CUDA0: Some GPU (8192 MiB, 3000 MiB free)"
GPU = Gpu("GPU-1", 0, "Some GPU", "cuda", pci="0000:01:00.0")
ON_GPU = (
    "load_tensors: offloaded 31/31 layers to GPU",
    "load_tensors:        CUDA0 model buffer size =    91.00 MiB",
)


class Recorded:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def prepared(self, build: Build, launch: Launch, ref: ModelRef) -> Launch:
        return launch

    async def started(self, engine: Engine, ref: ModelRef) -> None:
        self.calls.append("started")

    async def stopping(self, engine: Engine, ref: ModelRef) -> None:
        self.calls.append("stopping")


class Hall:
    """The house, its machine and who watches that."""

    def __init__(self, folder: Path, *scripts: Script, card: str = CARD) -> None:
        self.folder, self.card = folder, card
        self.build = install(folder, *scripts, devices=[card])
        self.machine = replace(look_of(self.build).machine, gpus=(GPU,))
        self.now = 1000.0
        self.gpus = Gpus(detect=self.detect, clock=lambda: self.now)
        self.hooks = Recorded()
        self.home: House
        self.watch: MachineWatch

    async def detect(self) -> Machine:
        return self.machine

    async def survey(self, *_: object, **__: object) -> Survey:
        build = await asked_again(self.build)
        return Survey(self.machine, (build,), Choice(build, "the only one"), None)

    def lose(self, **change: object) -> None:
        """The engine lists no GPU any more; `change` is what the system shows."""
        (self.folder / "devices").write_text("")
        self.machine = replace(self.machine, **{"gpus": (), **change})  # type: ignore[arg-type]

    def give_back(self) -> None:
        (self.folder / "devices").write_text(f"  {self.card}\n")
        self.machine = replace(look_of(self.build).machine, gpus=(GPU,))

    def starts(self) -> int:
        return starts(self.folder)

    def layers(self) -> int:
        """On the GPU, as planned for the engine that serves."""
        plan = self.home.serving.snapshot.plan
        assert plan is not None
        return plan.gpu_layers

    def degraded(self) -> tuple[str, ...]:
        """Codes of an answer."""
        return self.home.local.degraded(SERVED)

    def notes(self) -> list[Note]:
        """Those of a GPU, and of why the model was loaded again."""
        told = notes(self.home.serving.snapshot, MonitorSnapshot())
        return [note for note in told if note.code not in ("plan_estimated", "engine_build")]

    async def ready(self) -> None:
        await self.home.until(lambda now: now.state in ("ready", "failed"))

    async def crash(self) -> None:
        """The script ends at a chat; wait for what becomes of it."""
        assert await self.home.chat() == 0
        await self.home.until(lambda now: now.state != "ready")
        await self.ready()

    async def wait(self, seconds: float) -> None:
        """Time passes on the clock of the GPUs, with a look every ten seconds."""
        for _ in range(int(seconds // 10)):
            self.now += 10
            await self.watch.look()


@asynccontextmanager
async def hall(
    paths: Paths,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    *scripts: Script,
    load: bool = True,
    **settings: object,
) -> AsyncIterator[Hall]:
    """With the model loaded, unless told otherwise."""
    made = Hall(paths.data / "fake", *scripts)
    monkeypatch.setattr(loading, "survey", made.survey)
    async with house(paths, model, gpus=made.gpus, hooks=made.hooks, **settings) as made.home:  # type: ignore[arg-type]
        made.watch = MachineWatch(made.home.pool, made.gpus, paths, prove_s=1.0, idle_s=0.0)
        if load:
            await made.home.serving.load(made.home.ref)
        yield made


async def hang(home: House) -> None:
    """A stream that makes an engine with `hang_after_tokens` hang; its client leaves."""
    endpoint = home.serving.endpoint
    assert endpoint is not None
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
    connector = aiohttp.UnixConnector(endpoint.socket or "")
    async with (
        asyncio.timeout(10),
        aiohttp.ClientSession(endpoint.base_url, connector=connector, headers=headers) as client,
        client.post("/v1/chat/completions", json=body) as answer,
    ):
        await answer.content.readline()
