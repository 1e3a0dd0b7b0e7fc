"""What the supervisor reads of a real engine: its counters, its slots, its speed, a token."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from appliance.engines import Build, Endpoint, Engine, EngineKind, Limits, session, wire
from appliance.engines.pace import counts
from appliance.paths import Paths
from tests.engines.launches import MODEL_ID, Watch, build, launch, without_devices

KINDS: tuple[EngineKind, ...] = ("llama-server", "xllamacpp", "llama-cpp-python")
SECRET = "the word of the day is heliotrope"
LONG = f"{SECRET}. " * 16


@pytest.fixture(params=KINDS)
async def here(request: pytest.FixtureRequest) -> AsyncIterator[Build]:
    with without_devices():
        yield build(request.param)


async def chat(endpoint: Endpoint, text: str) -> None:
    body = {"model": MODEL_ID, "messages": [{"role": "user", "content": text}], "max_tokens": 4}
    async with session(endpoint) as client, client.post("/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
        await answer.read()


async def test_counters_move_a_probe_spares_the_conversation_and_no_prompt_is_logged(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    engine = Engine(here, launch(smollm2_path), paths=paths)
    await engine.start()
    endpoint = await engine.wait_ready()
    async with session(endpoint) as client:
        before = await wire.counters(client, 10.0)
        await chat(endpoint, LONG)
        after = await wire.counters(client, 10.0)
        slot = await wire.cheapest_slot(client, 10.0)
        kept = await cached_tokens(endpoint) if counts(here.kind) else {}
        assert await engine.probe()
        if counts(here.kind):
            assert before is not None
            assert after is not None
            assert all(new > old for old, new in zip(before.values, after.values, strict=True))
            assert after.inside == 0
            full = max(kept, key=lambda number: kept[number])
            assert kept[full] > 100
            assert slot != full
            assert (await cached_tokens(endpoint))[full] == kept[full]
        else:
            assert (before, after, slot) == (None, None, None)
    assert engine._pace.tokens_per_s is not None
    assert engine._pace.tokens_per_s > 5
    await engine.stop()
    log = " ".join(line.line for line in engine.lines(limit=2_000))
    assert "heliotrope" not in log
    assert "heliotrope" not in await asyncio.to_thread(text_of, engine.snapshot.log_file)


def text_of(file: str | None) -> str:
    assert file is not None
    return Path(file).read_text()


async def cached_tokens(endpoint: Endpoint) -> dict[int, int]:
    async with session(endpoint) as client, client.get("/slots") as answer:
        rows = await answer.json(content_type=None)
    return {row["id"]: row.get("n_prompt_tokens", 0) for row in rows}


@pytest.mark.slow
async def test_an_engine_that_stands_still_with_a_request_is_killed_and_comes_back(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    limits = Limits(quiet_s=0.5, sign_s=1.0, hang_s=4.0, probe_s=60.0, stop_s=2.0, backoff_s=(0.01,))
    watch = Watch()
    engine = Engine(here, launch(smollm2_path), paths=paths, limits=limits, on_change=watch.on_change)
    await engine.start()
    endpoint = await engine.wait_ready()
    pid = engine.snapshot.pid
    assert pid is not None
    with engine.busy():
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Exception, match=r"[Dd]isconnect|[Cc]onnect|[Pp]ayload"):
            await chat(endpoint, "Hi")
    now = await watch.until(lambda s: s.state == "ready" and s.restarts == 1, limit_s=120)
    assert now.crash is not None
    assert now.crash.exit == "killed, since it hung"
    fresh = engine.endpoint
    assert fresh is not None
    await chat(fresh, "Hi")
    await engine.stop()
