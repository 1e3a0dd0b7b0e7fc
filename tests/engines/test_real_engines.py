"""The same checks for all three engines, each on the real SmolLM2 model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import psutil
import pytest

from appliance.engines import Build, Endpoint, Engine, EngineKind, measure, session
from appliance.engines.environment import MARKER
from appliance.errors import EngineFailed, EngineUnavailable
from appliance.paths import Paths
from tests.engines.launches import MODEL_ID, Watch, build, launch, plan, without_devices
from tests.gguf.stubs import stub_parts

ROOT = Path(__file__).parents[2]
KINDS: tuple[EngineKind, ...] = ("llama-server", "xllamacpp", "llama-cpp-python")
QUESTION = {
    "model": MODEL_ID,
    "messages": [{"role": "user", "content": "What is the capital of France? Answer in one word."}],
    "max_tokens": 8,
    "temperature": 0,
}


@pytest.fixture(params=KINDS)
async def here(request: pytest.FixtureRequest) -> AsyncIterator[Build]:
    with without_devices():
        yield build(request.param)


async def streamed(endpoint: Endpoint) -> list[str]:
    """The data lines of one streamed answer."""
    async with session(endpoint) as client:
        answer = await client.post("/v1/chat/completions", json=QUESTION | {"stream": True})
        assert answer.status == 200
        text = await answer.text()
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def written(file: str) -> str:
    return Path(file).read_text()


def text_of(events: list[str]) -> str:
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


async def test_it_serves_with_its_key_only_and_leaves_nothing(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    watch = Watch()
    engine = Engine(here, launch(smollm2_path), paths=paths, on_change=watch.on_change)
    await engine.start()
    await engine.start()  # idempotent: no second process
    endpoint = await engine.wait_ready()
    ready = engine.snapshot
    slots = 1 if here.kind == "llama-cpp-python" else 2
    assert (ready.state, ready.gpu_layers, ready.n_layer) == ("ready", 0, 30)
    assert (ready.ctx, ready.parallel) == (512, slots)
    assert ready.buffers["CPU_Mapped"]["model"] == pytest.approx(92.10)
    assert endpoint.socket is not None
    assert endpoint.key not in " ".join(psutil.Process(ready.pid).cmdline())

    with engine.busy():
        assert engine.snapshot.state == "busy"
        events = await streamed(endpoint)
    assert engine.snapshot.slots_busy == 0
    assert events[-1] == "[DONE]"
    assert len(text_of(events)) > 3

    async with aiohttp.ClientSession(
        endpoint.base_url, connector=aiohttp.UnixConnector(endpoint.socket)
    ) as stranger:
        refused = await stranger.post("/v1/chat/completions", json=QUESTION)
        assert refused.status == 401

    log = " ".join(line.line for line in engine.lines(limit=2_000))
    assert endpoint.key not in log
    assert "capital of France" not in log
    assert ready.log_file is not None
    assert endpoint.key not in written(ready.log_file)

    await engine.stop()
    assert not psutil.pid_exists(ready.pid or 0)
    assert list(paths.runtime.iterdir()) == []
    assert list((paths.state / "engines").iterdir()) == []
    assert watch.states() == ["starting", "loading", "ready", "busy", "ready", "stopping", "absent"]
    with pytest.raises(EngineUnavailable):
        await engine.wait_ready()


async def test_a_killed_engine_is_back_as_another_generation(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    restarted = asyncio.Event()
    engine = Engine(
        here, launch(smollm2_path), paths=paths,
        on_change=lambda s: restarted.set() if s.state == "ready" and s.restarts else None,
    )  # fmt: skip
    await engine.start()
    first = await engine.wait_ready()
    pid = engine.snapshot.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await asyncio.wait_for(restarted.wait(), 60)
    second = engine.endpoint
    assert second is not None
    assert second.generation == first.generation + 1
    assert second.key != first.key
    assert engine.snapshot.pid != pid
    assert text_of(await streamed(second)) != ""
    await engine.stop()


async def test_chat_and_embeddings_from_one_process(here: Build, smollm2_path: Path, paths: Paths) -> None:
    engine = Engine(here, launch(smollm2_path, embedding=True), paths=paths)
    await engine.start()
    endpoint = await engine.wait_ready()
    async with session(endpoint) as client:
        answer = await client.post("/v1/embeddings", json={"model": MODEL_ID, "input": "a cat"})
        vector = (await answer.json())["data"][0]["embedding"]
    assert len(vector) == 576
    assert sum(x * x for x in vector) == pytest.approx(1.0, abs=1e-3)
    assert text_of(await streamed(endpoint)) != ""
    await engine.stop()


async def test_a_broken_model_file_says_so_with_its_last_lines(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    cut = paths.cache / "cut.gguf"
    with smollm2_path.open("rb") as whole:
        cut.write_bytes(whole.read(5_000_000))
    watch = Watch()
    engine = Engine(here, launch(cut), paths=paths, on_change=watch.on_change)
    await engine.start()
    with pytest.raises(EngineFailed) as caught:
        await engine.wait_ready()
    assert "while loading (exit code 1)" in caught.value.message
    assert caught.value.cause == "The model file is cut short or damaged."
    assert caught.value.hint == "Run `appliance models verify` on it."
    assert any("file bounds" in line for line in caught.value.lines)
    assert watch.states() == ["starting", "loading", "failed"]
    assert engine.snapshot.restarts == 0  # it would fail again
    await engine.stop()
    assert watch.states()[-1] == "absent"


DRIVER = """
import asyncio, sys
from pathlib import Path
from appliance.engines import Engine
from tests.engines.launches import build, launch, paths_in

async def main():
    engine = Engine(build(sys.argv[1]), launch(Path(sys.argv[2])), paths=paths_in(Path(sys.argv[3])))
    await engine.start()
    await engine.wait_ready()
    print(engine.snapshot.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_killed_daemon_takes_its_engine_along(here: Build, smollm2_path: Path, paths: Paths) -> None:
    driver = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, here.kind, str(smollm2_path), str(paths.config.parent),
        stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert driver.stdout is not None
    engine = psutil.Process(int(await driver.stdout.readline()))
    assert MARKER in engine.environ()
    killed = time.monotonic()
    driver.kill()
    await driver.wait()
    gone, _ = await asyncio.to_thread(psutil.wait_procs, [engine], 5.0)
    assert gone, "the engine outlived its daemon"
    assert time.monotonic() - killed < 5.0


async def test_a_plan_without_devices_uses_none(here: Build, smollm2_path: Path, paths: Paths) -> None:
    wanted = plan(gpu_layers=12)
    wanted = replace(wanted, flags=(*wanted.flags, "-dev", "none"))
    engine = Engine(here, launch(smollm2_path, wanted=wanted), paths=paths)
    await engine.start()
    await engine.wait_ready()
    buffers, layers = engine.snapshot.buffers, engine.snapshot.gpu_layers
    await engine.stop()
    assert layers == 0
    assert "model" in buffers["CPU_Mapped"]


async def test_the_engine_measures_a_plan_as_it_will_load(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    rows = await measure(here, stub_parts(smollm2_path), plan(), paths=paths)
    if here.kind == "llama-cpp-python":
        assert rows is None  # it has no dry run
        return
    assert rows is not None
    engine = Engine(here, launch(smollm2_path), paths=paths)
    await engine.start()
    await engine.wait_ready()
    buffers = engine.snapshot.buffers
    await engine.stop()
    mib = 1 << 20
    assert rows["Host"].context / mib == pytest.approx(buffers["CPU"]["kv"], abs=1.0)
    assert rows["Host"].compute / mib == pytest.approx(buffers["CPU"]["compute"], abs=1.0)
    assert rows["Host"].model / mib == pytest.approx(buffers["CPU_Mapped"]["model"], abs=1.0)
    assert [path for path in paths.cache.rglob("*") if path.is_file()] == []
    assert list(paths.runtime.iterdir()) == []
