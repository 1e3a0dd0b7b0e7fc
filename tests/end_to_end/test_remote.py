"""The second leg: what sends a request to the remote, what never leaves, and that the wire says so.

The remote is a server that follows vLLM's wire; it counts what reached it, so "nothing left" is a fact.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import aiohttp

from tests.end_to_end.appliance import Home, Running
from tests.end_to_end.second_leg import KEY, REMOTE_MODEL, SMALL, appliance, ask, remote_server, wait
from tests.engines.fake_engine import Script, install


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
