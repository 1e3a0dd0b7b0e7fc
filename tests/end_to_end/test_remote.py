"""The second leg: what sends a request to the remote, what never leaves, and that the wire says so.

The remote is a server that follows vLLM's wire; it counts what reached it, so "nothing left" is a fact.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests import nvml_stub
from tests.end_to_end.appliance import MODEL, Home, Running
from tests.engines.fake_engine import Script, install
from tests.fake_vllm import FakeVllm

REMOTE_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
KEY = "remote-secret-41"
SMALL = ("--ctx", "1024", "--parallel", "1")


@asynccontextmanager
async def appliance(
    home: Home, remote: FakeVllm, *arguments: str, env: dict[str, str] | None = None
) -> AsyncIterator[Running]:
    """A running appliance whose only remote is the fake one, seen as up."""
    added = await asyncio.to_thread(
        home.run, "remote", "add", "lab", remote.url, "--api-key-env", "LAB_KEY",
        "--model", f"{MODEL}={REMOTE_MODEL}",
    )  # fmt: skip
    assert added.code == 0, added.err
    manager = home.up(MODEL, *arguments, env={"LAB_KEY": KEY, **(env or {})})
    running = await asyncio.to_thread(manager.__enter__)
    try:
        await wait(running, lambda status: status["remotes"][0]["state"] == "up")
        yield running
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


async def wait(running: Running, look: Any, limit_s: float = 30) -> dict[str, Any]:
    """The first status for which `look` holds."""
    async with asyncio.timeout(limit_s):
        while True:
            status = await asyncio.to_thread(running.status)
            if look(status):
                return status
            await asyncio.sleep(0.1)


async def ask(
    running: Running, route: str | None = None, **more: Any
) -> tuple[int, dict[str, str], dict[str, Any]]:
    """One plain chat request: status, headers, body."""
    headers = {"X-Appliance-Route": route} if route else {}
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, **more}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{running.url}/chat/completions", json=body, headers=headers) as response,
    ):
        return response.status, dict(response.headers), await response.json()


def remote_server() -> FakeVllm:
    return FakeVllm(models=(REMOTE_MODEL,), key=KEY)


async def stop_engine(running: Running) -> None:
    """Unload the model through the control plane, as the UI's key does."""
    record = json.loads((running.home.root / "state" / "daemon.json").read_text())
    headers = {"Authorization": f"Bearer {record['token']}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{running.root}/api/engine/stop", json={}) as response,
    ):
        assert response.status == 200, await response.text()


async def test_while_the_local_side_is_well_nothing_leaves(home: Home) -> None:
    async with remote_server() as remote, appliance(home, remote, *SMALL) as running:
        for _ in range(3):
            status, headers, body = await ask(running)
            assert (status, headers["X-Appliance-Route"]) == (200, "local")
            assert body["appliance"]["reason"] == "local.ok"
        assert remote.generations == []


async def test_with_the_engine_down_the_remote_answers_and_says_so_but_local_never_leaves(home: Home) -> None:
    async with remote_server() as remote, appliance(home, remote, *SMALL) as running:
        await stop_engine(running)
        status, headers, body = await ask(running)
        assert status == 200, body
        assert headers["X-Appliance-Route"] == "remote"
        assert headers["X-Appliance-Reason"] == "remote.engine_down"
        assert headers["X-Appliance-Model"] == REMOTE_MODEL
        assert headers["X-Appliance-Degraded"] == "remote"
        assert body["model"] == REMOTE_MODEL
        assert body["appliance"]["degraded"] == ["remote"]
        assert body["choices"][0]["message"]["content"] == "Hello from the remote."
        assert remote.generations[0].headers["Authorization"] == f"Bearer {KEY}"
        assert remote.generations[0].body["model"] == REMOTE_MODEL
        left = len(remote.generations)
        status, headers, body = await ask(running, route="local")
        assert (status, headers["X-Appliance-Route"]) == (503, "none")
        assert headers["X-Appliance-Reason"] in ("reject.unavailable", "reject.local_only")
        assert 1 <= int(headers["Retry-After"]) <= 120
        assert len(remote.generations) == left
        report = (await asyncio.to_thread(running.status))["today"]
        assert (report["remote"], report["errors"]) == (1, 1)


async def test_asked_for_the_remote_answers_and_it_is_no_degradation(home: Home) -> None:
    async with remote_server() as remote, appliance(home, remote, *SMALL) as running:
        status, headers, body = await ask(running, route="remote")
        assert (status, headers["X-Appliance-Reason"]) == (200, "remote.forced")
        assert "degraded" not in body["appliance"]
        assert len(remote.generations) == 1


async def test_a_queue_wait_over_the_limit_goes_to_the_remote(home: Home, tmp_path: Path) -> None:
    slow = install(tmp_path / "engine", Script(tokens=("a",) * 400, token_s=0.05))
    env = {"APPLIANCE_ENGINE__LLAMA_SERVER": str(slow.path), "APPLIANCE_ROUTING__MAX_WAIT": "300ms"}
    more = ("--engine", "llama-server", *SMALL)
    async with remote_server() as remote, appliance(home, remote, *more, env=env) as running:
        first = asyncio.create_task(ask(running, max_tokens=400))
        await wait(running, lambda status: status["queue"]["running"] == 1)
        status, headers, _ = await ask(running)
        assert (status, headers["X-Appliance-Reason"]) == (200, "remote.queue")
        assert len(remote.generations) == 1
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_while_the_engine_loads_the_remote_answers(home: Home, tmp_path: Path) -> None:
    loading = install(tmp_path / "engine", Script(), Script(load_s=60.0))
    env = {"APPLIANCE_ENGINE__LLAMA_SERVER": str(loading.path)}
    more = ("--engine", "llama-server", *SMALL)
    async with remote_server() as remote, appliance(home, remote, *more, env=env) as running:
        os.kill(await asyncio.to_thread(running.engine_pid), signal.SIGKILL)
        await wait(running, lambda status: status["engines"][0]["state"] == "loading")
        status, headers, _ = await ask(running)
        assert (status, headers["X-Appliance-Reason"]) == (200, "remote.loading")


async def test_a_critically_hot_gpu_sends_requests_away_and_local_ones_get_503(
    home: Home, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    library = nvml_stub.build(tmp_path_factory.getbasetemp())
    state = tmp_path / "gpu"
    nvml_stub.write_state(state, temp=60, t_slowdown=94)
    env = nvml_stub.environment(library, state) | {
        "APPLIANCE_GOVERNOR__HOLD": "1s",
        "APPLIANCE_GOVERNOR__DWELL": "2s",
    }
    env = {key: env[key] for key in env if key.startswith(("APPLIANCE_G", "LD_LIBRARY", "FAKE_NVML"))}
    async with remote_server() as remote, appliance(home, remote, *SMALL, env=env) as running:
        found = await wait(running, lambda s: s["gpus"] and s["gpus"][0]["temperature"] == 60)
        assert found["thermal"] == "cool"
        assert found["gpus"][0]["slowdown_at"] == 94
        assert [note["code"] for note in found["notes"]].count("no_gpu_engine") == 1
        assert "engines install cuda" in next(
            n["todo"] for n in found["notes"] if n["code"] == "no_gpu_engine"
        )
        status, _, body = await ask(running)
        assert (status, body["appliance"]["degraded"]) == (200, ["cpu_fallback"])
        nvml_stub.write_state(state, temp=95, t_slowdown=94, reasons=0x40)
        await wait(running, lambda s: s["thermal"] == "critical")
        status, headers, _ = await ask(running)
        assert (status, headers["X-Appliance-Reason"]) == (200, "remote.thermal")
        left = len(remote.generations)
        status, headers, _ = await ask(running, route="local")
        assert (status, headers["X-Appliance-Reason"]) == (503, "reject.thermal")
        assert len(remote.generations) == left
        nvml_stub.write_state(state, temp=70, t_slowdown=94)
        await wait(running, lambda s: s["thermal"] == "cool")
        status, headers, _ = await ask(running)
        assert (status, headers["X-Appliance-Route"]) == (200, "local")


async def test_a_machine_measurably_slowed_by_heat_gives_way_and_comes_back(
    home: Home, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Speed decides, the sensor explains: the same heat at usual speed changes nothing."""
    library = nvml_stub.build(tmp_path_factory.getbasetemp())
    state = tmp_path / "gpu"
    nvml_stub.write_state(state, temp=60, t_slowdown=94)
    words = ("a",) * 10
    fast, slow = Script(tokens=words, token_s=0.01), Script(tokens=words, token_s=0.25)
    engine = install(tmp_path / "engine", fast, slow)
    seen = nvml_stub.environment(library, state) | {"APPLIANCE_ENGINE__LLAMA_SERVER": str(engine.path)}
    env = {key: seen[key] for key in seen if key.startswith(("APPLIANCE_E", "LD_LIBRARY", "FAKE_NVML"))}
    more = ("--engine", "llama-server", *SMALL)
    async with remote_server() as remote, appliance(home, remote, *more, env=env) as running:
        for _ in range(6):
            assert (await ask(running, max_tokens=10))[0] == 200
        nvml_stub.write_state(state, temp=93, t_slowdown=94, reasons=0x20)
        await wait(running, lambda s: s["thermal"] == "warm")
        _, headers, _ = await ask(running, max_tokens=10)
        assert headers["X-Appliance-Route"] == "local", "hot at usual speed stays here"
        os.kill(await asyncio.to_thread(running.engine_pid), signal.SIGKILL)
        await wait(
            running, lambda s: s["engines"][0]["state"] == "ready" and s["engines"][0]["restarts"] == 1
        )
        for _ in range(3):
            await ask(running, route="local", max_tokens=10)
        found = await wait(running, lambda s: s["thermal"] == "throttled")
        assert found["factor"] < 0.5
        _, headers, body = await ask(running, route="local", max_tokens=10)
        assert body["appliance"]["degraded"] == ["cpu_fallback", "throttled"]
        left = len(remote.generations)
        status, headers, _ = await ask(running, max_tokens=10)
        assert (status, headers["X-Appliance-Reason"]) == (200, "remote.thermal")
        assert len(remote.generations) == left + 1
        nvml_stub.write_state(state, temp=60, t_slowdown=94)
        await wait(running, lambda s: s["thermal"] == "cool")


async def test_a_remote_that_is_down_too_ends_in_one_truthful_error(home: Home) -> None:
    async with remote_server() as remote, appliance(home, remote, *SMALL) as running:
        await stop_engine(running)
        await remote.refuse()
        status, headers, body = await ask(running)
        assert (status, headers["X-Appliance-Route"]) == (503, "none")
        assert body["error"]["message"]
        assert KEY not in str(body)


async def test_the_key_of_the_remote_is_in_no_file_of_ours(home: Home) -> None:
    async with remote_server() as remote, appliance(home, remote, *SMALL) as running:
        await ask(running, route="remote")
        tested = await asyncio.to_thread(home.run, "remote", "test", "lab", "--json")
        assert tested.code == 0, tested.out + tested.err
        assert tested.document["state"] == "up"
        assert KEY not in tested.out
    for file in home.root.rglob("*"):
        if file.is_file() and file.suffix != ".gguf":
            assert KEY.encode() not in file.read_bytes(), file
