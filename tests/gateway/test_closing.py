"""Stopping the gateway: what runs ends with an error that says so, what waits is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from appliance.gateway.data import GATE
from tests.gateway.house import LOCAL_MODEL, House, short, until
from tests.gateway.house import house as running
from tests.gateway.upstream import Script

_AWAY = {"X-Appliance-Route": "remote"}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """A gateway that gives running replies no time, and whose runner would wait for long."""
    async with running(short(grace_s=0.0), shutdown_timeout_s=20.0) as made:
        made.remote.up = True
        yield made


async def _read(house: House, **body: Any) -> tuple[int, Any, bytes]:
    async with house.post(**body) as got:
        return got.status, got.headers, await got.read()


async def _cleanup(house: House) -> None:
    async with asyncio.timeout(5):  # far under the runner's own timeout
        await house.runner.cleanup()


@pytest.mark.parametrize("away", [True, False])
async def test_a_running_stream_ends_in_an_error_event(house: House, away: bool) -> None:
    upstream = house.far if away else house.engine
    upstream.script = Script(breaks_after=2, breakage="hang")
    async with house.post(stream=True, headers=_AWAY if away else {}) as got:
        while "wörld".encode() not in await got.content.readuntil(b"\n\n"):
            pass
        await _cleanup(house)
        raw = await got.read()
        told = got.headers["X-Appliance-Route"]
    assert raw.startswith(b"data: {")
    assert raw.count(b"data: ") == 1
    error = json.loads(raw.removeprefix(b"data: "))["error"]
    assert error["code"] == "reject.unavailable"
    assert error["appliance"]["route"] == told == ("remote" if away else "local")
    row = await house.row()
    assert (row.status, row.route) == (503, "remote" if away else "local")
    assert house.remote.reports == (["cancelled"] if away else [])
    await upstream.seen[0].over.wait()
    assert upstream.seen[0].gone.is_set()


async def _refused(asked: asyncio.Task[tuple[int, Any, bytes]]) -> None:
    status, headers, raw = await asked
    assert status == 503
    assert headers["X-Appliance-Reason"] == "reject.unavailable"
    assert headers["X-Appliance-Route"] == "none"
    assert 1 <= int(headers["Retry-After"]) <= 120
    assert json.loads(raw)["error"]["message"] == "The appliance is stopping."


@pytest.mark.parametrize("script", [
    Script(breaks_after=2, breakage="hang"), Script(first=asyncio.Event()),
    Script(before_headers=asyncio.Event()),
])  # fmt: skip
async def test_a_running_plain_request_is_a_503(house: House, script: Script) -> None:
    house.engine.script = script
    asked = asyncio.create_task(_read(house))
    await house.engine.arrived.get()
    await _cleanup(house)
    await _refused(asked)
    row = await house.row()
    assert (row.status, row.reason) == (503, "reject.unavailable")


async def test_a_stream_that_has_said_nothing_is_a_503(house: House) -> None:
    house.engine.script = Script(first=asyncio.Event())
    asked = asyncio.create_task(_read(house, stream=True))
    await house.engine.arrived.get()
    await _cleanup(house)
    await _refused(asked)


async def test_with_pending_headers_it_is_an_error_event() -> None:
    async with running(short(grace_s=0.0, hold_s=0.01), shutdown_timeout_s=20.0) as house:
        house.engine.script = Script(first=asyncio.Event())
        async with house.post(stream=True) as got:
            assert await got.content.readuntil(b"\n\n") == b": ping\n\n"
            await _cleanup(house)
            raw = await got.read()
    assert json.loads(raw.split(b"data: ")[-1])["error"]["appliance"]["route"] == "none"
    assert (await house.row()).status == 503


async def test_what_waits_is_refused_at_once_while_the_running_one_may_end() -> None:
    async with running(short(grace_s=15.0), shutdown_timeout_s=20.0) as house:
        first = house.engine.script.first = asyncio.Event()
        runs = asyncio.create_task(_read(house, stream=True))
        await house.engine.arrived.get()
        waits = [asyncio.create_task(_read(house, stream=stream)) for stream in (True, False)]
        await until(lambda: house.local.queue.snapshot.waiting == 2)
        stopped = asyncio.create_task(_cleanup(house))
        for one in waits:
            await _refused(one)
        assert not stopped.done()
        first.set()
        status, _, raw = await runs
        assert (status, raw[-14:]) == (200, b"data: [DONE]\n\n")
        await stopped
    assert sorted([(await house.row()).status for _ in range(3)]) == [200, 503, 503]


async def test_a_request_that_waits_for_a_loading_engine_is_refused(house: House) -> None:
    house.remote.up = False
    house.local.state = "loading"
    asked = asyncio.create_task(_read(house))
    await until(lambda: house.local.queue.snapshot.running == 1)
    await _cleanup(house)
    await _refused(asked)


async def test_the_daemon_may_say_so_before_and_hurry(house: House) -> None:
    """Nothing new is taken on open connections, and health says so."""
    house.engine.script = Script(breaks_after=2, breakage="hang")
    runs = asyncio.create_task(_read(house, stream=True))
    await house.engine.arrived.get()
    gate = house.runner.app[GATE]
    gate.shut_down("The appliance is stopping.", grace_s=60.0)
    async with house.http.get(f"{house.url}/health") as got:
        assert (got.status, (await got.json())["status"]) == (503, "stopping")
    await _refused(asyncio.create_task(_read(house)))
    assert not runs.done()
    before = time.perf_counter()
    for _ in range(4):  # also while the request is just being ended
        gate.shut_down(grace_s=0.0)
        await asyncio.sleep(0)
    assert b'"reject.unavailable"' in (await runs)[2]
    gate.shut_down(grace_s=60.0)
    await _cleanup(house)
    assert time.perf_counter() - before < 5


async def test_an_idle_gateway_stops_and_no_slot_stays_held(house: House) -> None:
    async with house.post() as got:
        assert got.headers["X-Appliance-Model"] == LOCAL_MODEL
        await got.read()
    await _cleanup(house)
    assert house.local.queue.snapshot.running == 0
