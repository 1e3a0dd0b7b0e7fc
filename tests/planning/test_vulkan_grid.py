"""Every number of layers, really loaded on Mesa's llvmpipe: formulas and dry run against the engine's log.

The rows that AMX and repacked weights add beside the file's are left aside: they belong to the processor.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.engines import Build, Engine, measure
from appliance.engines.adapters import Listen, command
from appliance.engines.logparse import LoadReader
from appliance.engines.logs import LogRing
from appliance.engines.process import spawn
from appliance.gguf import Header, read_header
from appliance.paths import Paths
from appliance.planning import DeviceMemory, HostMemory, Plan, PlanRequest, make_plan
from appliance.units import GIB, MIB
from tests.engines.launches import build, launch, paths_in
from tests.gguf.stubs import stub_parts

pytestmark = [pytest.mark.vulkan, pytest.mark.timeout(600)]

DEVICE = DeviceMemory("Vulkan0", "llvmpipe", "vulkan", 8 * GIB, 8 * GIB, software=True, max_tensor=128 * MIB)
HOST = HostMemory(32 * GIB, 24 * GIB, 2)
CONTEXTS = ((2_048, 1), (8_192, 1), (8_192, 2))
"""(tokens per request, requests)"""
ASKED_EVERY = 6  # so many layers; a dry run costs as much as a load of these small models


@dataclass(frozen=True, slots=True)
class Model:
    """One of the two, and what is promised for its compute buffer."""

    path: Path
    header: Header
    compute: float


@pytest.fixture
def paths() -> Iterator[Paths]:
    """A home with a short path: pytest's own folders are too deep for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")


@pytest.fixture(params=["smollm2", "gemma3"])
def model(request: pytest.FixtureRequest) -> Model:
    path = request.getfixturevalue(f"{request.param}_path")
    # Gemma's output matrix is refused by this device, which its formula for the rest is not made for
    return Model(path, read_header(path), 0.15 if request.param == "smollm2" else 0.30)


@pytest.mark.parametrize(("ctx", "slots"), CONTEXTS, ids=lambda value: str(value))
async def test_every_number_of_layers(model: Model, ctx: int, slots: int, paths: Paths) -> None:
    server = build("llama-server")
    wrong: list[str] = []
    for layers in range(_all(model) + 1):
        plan = _plan(model, layers, ctx, slots)
        log = await _loaded(server, model, plan, paths)
        if layers:
            wrong += [f"{layers} layers: {text}" for text in _differences(plan, log, model.compute)]
        if layers and layers % ASKED_EVERY == 0:
            wrong += [
                f"{layers} layers, asked: {text}" for text in await _asked(server, model, plan, log, paths)
            ]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
async def test_planned_splits_serve(model: Model, part: float, paths: Paths) -> None:
    plan = _plan(model, round(part * _all(model)), 8_192, 2)
    engine = Engine(build("llama-server"), launch(model.path, wanted=plan), paths=paths)
    await engine.start()
    try:
        await engine.wait_ready()
        assert engine.snapshot.gpu_layers == plan.gpu_layers
        assert engine.snapshot.ctx == plan.ctx
    finally:
        await engine.stop()


def _all(model: Model) -> int:
    return _plan(model, 0, 512, 1).n_layer + 1


def _plan(model: Model, layers: int, ctx: int, slots: int) -> Plan:
    request = PlanRequest(ctx=ctx, parallel=slots, gpu_layers=layers, kv_type="f16", n_ubatch=512)
    return make_plan(model.header, [DEVICE], HOST, request, model="m", engine_build="llama-server b10434")


async def _loaded(server: Build, model: Model, plan: Plan, paths: Paths) -> Mapping[str, Mapping[str, float]]:
    """The buffers that a real load logs, up to where all of them are there."""
    watch, marker, key = _Watch(), secrets.token_hex(16), secrets.token_hex(32)
    listen = Listen(str(paths.runtime / f"grid-{secrets.token_hex(4)}.sock"), 0)
    what = await command(
        server, launch(model.path, wanted=plan), listen, key=key, marker=marker, warmup=False
    )
    child = await spawn(what, marker=marker, ring=LogRing(200), on_line=watch.feed, secret=key)
    waits = [asyncio.create_task(child.wait()), asyncio.create_task(watch.reserved.wait())]
    try:
        await asyncio.wait(waits, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    finally:
        child.kill()
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await child.end(1.0)
    assert watch.reserved.is_set(), f"{plan.gpu_layers} layers don't load"
    if not plan.devices or plan.devices[0].model > MIB:  # the output matrix alone may have been refused
        assert watch.reader.gpu_layers == plan.gpu_layers
    return watch.reader.buffers


class _Watch:
    """Reads the log until the compute buffers are reserved."""

    def __init__(self) -> None:
        self.reader = LoadReader()
        self.reserved = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def feed(self, line: str) -> None:
        self.reader.feed(line)
        if "reserve took" in line:
            self._loop.call_soon_threadsafe(self.reserved.set)


def _differences(plan: Plan, log: Mapping[str, Mapping[str, float]], compute: float) -> Iterator[str]:
    device, said = plan.devices[0], log["Vulkan0"]
    rows = [
        ("model", device.model, said.get("model", 0.0), 0.01),
        ("KV", device.kv, said.get("kv", 0.0), 0.01),
        ("compute", device.compute, said["compute"], compute),
        ("KV in RAM", plan.host.kv, log.get("CPU", {}).get("kv", 0.0), 0.01),
    ]
    for name, planned, logged, bound in rows:
        if abs(planned / MIB - logged) > max(bound * logged, 0.01):
            yield f"{name} {planned / MIB:.2f} MiB, logged {logged:.2f}"


async def _asked(
    server: Build, model: Model, plan: Plan, log: Mapping[str, Mapping[str, float]], paths: Paths
) -> list[str]:
    rows = await measure(server, stub_parts(model.path), plan, paths=paths)
    if rows is None:
        return ["no answer"]
    said = rows["Vulkan0"]
    pairs = [("model", said.model), ("kv", said.context), ("compute", said.compute)]
    return [
        f"{name} {value / MIB:.0f} MiB, logged {log['Vulkan0'].get(name, 0.0):.2f}"
        for name, value in pairs
        if abs(value / MIB - log["Vulkan0"].get(name, 0.0)) > 1.0
    ]
