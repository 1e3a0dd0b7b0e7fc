"""An engine that is up and does not work is found by what it does not do; one that is slow is left alone."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from appliance.engines import Endpoint, Engine, Limits, session, wire
from appliance.paths import Paths
from tests.engines.fake_engine import Script, install, starts
from tests.engines.launches import Watch, launch
from tests.engines.requests import QUICK, stream

MODEL = Path("/nonexistent.gguf")


class Setting:
    """An engine with these scripts, started, and what it told."""

    def __init__(self, paths: Paths, *scripts: Script, limits: Limits = QUICK) -> None:
        self.folder = paths.data / "fake"
        self.watch = Watch()
        self.engine = Engine(
            install(self.folder, *scripts), launch(MODEL), paths=paths, limits=limits,
            on_change=self.watch.on_change,
        )  # fmt: skip

    async def ready(self) -> Engine:
        await self.engine.start()
        async with asyncio.timeout(20):
            await self.engine.wait_ready()
        return self.engine

    async def restarted(self) -> None:
        await self.watch.until(lambda s: s.state == "ready" and s.restarts == 1)


@pytest.mark.parametrize("script", [Script(hang_after_tokens=2), Script(stall_after_tokens=2)])
async def test_a_stream_that_stands_still_ends_in_a_restart_though_health_is_fine(
    paths: Paths, script: Script
) -> None:
    setting = Setting(paths, script, Script())
    engine = await setting.ready()
    pid, began = engine.snapshot.pid, time.monotonic()
    streaming = asyncio.create_task(stream(engine))
    await setting.watch.until(lambda s: s.state == "busy")
    endpoint = engine.endpoint
    assert endpoint is not None
    await asyncio.sleep(QUICK.hang_s / 2 if QUICK.hang_s else 0)
    async with session(endpoint) as client:
        assert await wire.health(client, "llama-server") == "ok"
    assert await streaming is False
    assert 1.0 < time.monotonic() - began < 15
    await setting.restarted()
    assert not psutil.pid_exists(pid or 0)
    crash = engine.snapshot.crash
    assert crash is not None
    assert (crash.message, crash.exit) == (
        "The engine hung while serving and was killed.",
        "killed, since it hung",
    )
    assert crash.requests == 1
    assert await stream(engine)
    assert engine.snapshot.slots_busy == 0
    await engine.stop()


async def test_a_long_prompt_that_is_worked_off_in_batches_is_no_hang(paths: Paths) -> None:
    setting = Setting(paths, Script(prompt_s=3.6, prompt_batches=12))
    engine = await setting.ready()
    assert await stream(engine)
    assert starts(setting.folder) == 1
    await engine.stop()


async def test_one_long_batch_within_the_engine_s_patience_is_no_hang(paths: Paths) -> None:
    limits = Limits(quiet_s=0.1, sign_s=0.3, hang_s=6.0, stop_s=1.0)
    setting = Setting(paths, Script(prompt_s=2.0), limits=limits)
    engine = await setting.ready()
    assert await stream(engine)
    assert starts(setting.folder) == 1
    await engine.stop()


async def test_a_client_that_reads_slowly_is_no_hang(paths: Paths) -> None:
    setting = Setting(paths, Script())
    engine = await setting.ready()
    with engine.busy():  # the engine has long sent everything
        await asyncio.sleep(3 * (QUICK.hang_s or 0))
    assert (starts(setting.folder), engine.snapshot.restarts) == (1, 0)
    await engine.stop()


async def test_clients_that_give_up_early_do_not_hide_a_hang(paths: Paths) -> None:
    setting = Setting(paths, Script(hang_after_tokens=0), Script())
    engine = await setting.ready()
    async with asyncio.timeout(30):
        while engine.snapshot.restarts == 0:
            if engine.endpoint is None:
                await asyncio.sleep(0.01)
            else:
                await stream(engine, leave_after_s=0.3)
    crash = engine.snapshot.crash
    assert crash is not None
    assert crash.message == "The engine stayed up and did not work any more; it was killed."
    await setting.restarted()
    await engine.stop()


async def test_two_errors_of_its_own_in_a_row_and_no_token_end_in_a_restart(paths: Paths) -> None:
    setting = Setting(paths, Script(broken_after=1), Script())
    engine = await setting.ready()
    assert await stream(engine)
    assert not await stream(engine)
    assert not await stream(engine)
    await setting.restarted()
    crash = engine.snapshot.crash
    assert crash is not None
    assert crash.message == "The engine stayed up and did not work any more; it was killed."
    assert "Compute error." in (crash.cause or "")
    assert await stream(engine)
    await engine.stop()


async def test_an_engine_whose_socket_is_gone_is_started_again(paths: Paths) -> None:
    setting = Setting(paths, Script(), Script())
    engine = await setting.ready()
    pid, endpoint = engine.snapshot.pid, engine.endpoint
    assert endpoint is not None
    assert endpoint.socket is not None
    os.unlink(endpoint.socket)
    assert not await stream(engine)
    assert not await stream(engine)
    await setting.restarted()
    assert not psutil.pid_exists(pid or 0)
    crash = engine.snapshot.crash
    assert crash is not None
    assert crash.cause == "It can't be connected to (No such file or directory)."
    assert await stream(engine)
    await engine.stop()


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The probes that an engine gets."""
    seen: list[Any] = []
    real = wire.probe

    async def counted(*arguments: Any) -> None:
        seen.append(arguments)
        await real(*arguments)

    monkeypatch.setattr(wire, "probe", counted)
    return seen


async def test_errors_that_a_token_disproves_cost_one_probe_and_no_restart(
    paths: Paths, probes: list[Any]
) -> None:
    limits = Limits(quiet_s=0.1, sign_s=0.3, hang_s=5.0, doubt_s=60.0, stop_s=1.0)
    setting = Setting(paths, Script(garbage=True), limits=limits)
    engine = await setting.ready()
    for _ in range(6):
        assert not await stream(engine)
    await asyncio.sleep(0.5)
    assert len(probes) == 2  # the load's, and one for the first two errors: the others came too soon after
    assert (starts(setting.folder), engine.snapshot.state) == (1, "ready")
    await engine.stop()


async def test_an_idle_engine_and_one_that_works_are_never_probed(paths: Paths, probes: list[Any]) -> None:
    setting = Setting(paths, Script())
    engine = await setting.ready()
    await asyncio.sleep(1.0)
    with engine.busy() as lease:
        lease.suspect()
    assert await stream(engine)  # worked in between
    with engine.busy() as lease:
        lease.suspect()
    await asyncio.sleep(0.5)
    assert len(probes) == 1
    await engine.stop()


async def kept_tokens(endpoint: Endpoint) -> dict[int, int]:
    """What each slot keeps of its last conversation."""
    async with session(endpoint) as client:
        rows = await (await client.get("/slots")).json()
    return {row["id"]: row.get("n_prompt_tokens", 0) for row in rows}


async def test_a_probe_is_shared_and_leaves_the_conversation_s_slot_alone(
    paths: Paths, probes: list[Any]
) -> None:
    setting = Setting(paths, Script())
    engine = await setting.ready()
    endpoint = engine.endpoint
    assert endpoint is not None
    assert await stream(engine)  # a conversation, in the slot that the load's probe had used
    before = await kept_tokens(endpoint)
    await asyncio.sleep(1.1)  # so that the stream itself is no proof any more
    assert await asyncio.gather(*(engine.probe() for _ in range(5))) == [True] * 5
    after = await kept_tokens(endpoint)
    assert len(before) == 2
    longest = max(before, key=lambda slot: before[slot])
    assert after[longest] == before[longest] > 2
    assert len(probes) == 2  # the load's and one for all five
    await engine.stop()


async def test_a_probe_that_somebody_asks_for_finds_a_dead_engine(paths: Paths) -> None:
    setting = Setting(paths, Script(hang_after_tokens=0), Script())
    engine = await setting.ready()
    assert not await stream(engine, leave_after_s=0.2)
    assert await engine.probe() is False
    await setting.restarted()
    assert await engine.probe() is True
    await engine.stop()
    assert await engine.probe() is False


async def test_a_probe_that_gets_no_result_is_no_proof(paths: Paths) -> None:
    setting = Setting(paths, Script(garbage_probe=True))
    await setting.engine.start()
    failed = await setting.watch.until(lambda s: s.state == "failed")
    assert failed.cause == "/completion answered something else than a result"
    await setting.engine.stop()


async def test_a_client_that_still_holds_on_to_a_dead_process_says_nothing_about_the_next(
    paths: Paths,
) -> None:
    setting = Setting(paths, Script(die_after_tokens=1), Script())
    engine = await setting.ready()
    with engine.busy() as old:
        await stream(engine)
        await setting.watch.until(lambda s: s.state == "busy" and s.restarts == 1)
        old.suspect()
        old.suspect()
        await asyncio.sleep(2.5 * (QUICK.hang_s or 0))
    assert (engine.snapshot.state, engine.snapshot.restarts) == ("ready", 1)
    await engine.stop()
