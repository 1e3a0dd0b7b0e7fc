"""A machine that turns critical, or goes on battery, while requests wait: they are decided again at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from appliance.gateway.admission import Easing
from appliance.monitor import MonitorSnapshot
from appliance.settings import Governor, Settings
from tests.gateway.house import REMOTE_MODEL, House, short, until
from tests.gateway.house import house as running
from tests.gateway.upstream import Script

CRITICAL = Easing("the machine is critically hot", 60.0, stops=True)
EASED = Easing("heat slows the machine", 60.0)
STREAMS = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture
async def busy() -> AsyncIterator[House]:
    """One request inside the engine that doesn't end by itself; the remote is up."""
    async with running(short(load_s=30.0), slots=1, max_queue=4) as house:
        house.remote.up = True
        house.engine.script = Script(first=asyncio.Event())
        first = asyncio.create_task(asked(house, headers={"X-Appliance-Route": "local"}))
        await house.engine.arrived.get()
        yield house
        assert house.engine.script.first is not None
        house.engine.script.first.set()
        status, headers, _ = await first
        assert (status, headers["X-Appliance-Route"]) == (200, "local"), "what runs goes on"


async def asked(house: House, **request: Any) -> tuple[int, dict[str, str], dict[str, Any]]:
    async with house.post(**request) as got:
        raw = await got.read()
        body = await got.json() if got.content_type == "application/json" else {"raw": raw.decode()}
        return got.status, dict(got.headers), body


async def waiting(house: House, *requests: dict[str, Any]) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(asked(house, **request)) for request in requests]
    await until(lambda: house.local.queue.snapshot.waiting == len(requests))
    return tasks


def turns_critical(house: House) -> None:
    house.local.thermal = "critical"
    house.local.queue.ease(CRITICAL)


@STREAMS
async def test_who_waits_and_may_leave_does_so_at_once(busy: House, stream: bool) -> None:
    (task,) = await waiting(busy, {"stream": stream})
    turns_critical(busy)
    async with asyncio.timeout(2):
        status, headers, _ = await task
    assert (status, headers["X-Appliance-Reason"]) == (200, "remote.thermal")
    assert headers["X-Appliance-Model"] == REMOTE_MODEL


@pytest.mark.parametrize(
    "request_",
    [
        {"headers": {"X-Appliance-Route": "local"}},
        {"grammar": 'root ::= "x"'},
        {"headers": {"X-Appliance-Route": "local", "X-Appliance-Priority": "batch"}},
    ],
)
async def test_who_waits_and_may_not_leave_is_told_so_at_once(busy: House, request_: dict[str, Any]) -> None:
    (task,) = await waiting(busy, request_)
    turns_critical(busy)
    async with asyncio.timeout(2):
        status, headers, body = await task
    assert (status, headers["X-Appliance-Reason"]) == (503, "reject.thermal")
    assert headers["Retry-After"] == "60"
    assert "critically hot" in body["error"]["message"]
    assert busy.far.seen == [], "nothing has left"
    assert len(busy.engine.seen) == 1, "and nothing was started"


async def test_local_only_holds_on_a_critical_machine(busy: House) -> None:
    busy.configure(policy="local-only")
    (task,) = await waiting(busy, {})
    turns_critical(busy)
    async with asyncio.timeout(2):
        status, headers, _ = await task
    assert (status, headers["X-Appliance-Reason"]) == (503, "reject.thermal")
    assert busy.far.seen == []


async def test_a_request_that_waits_for_a_load_lets_go_of_it_at_once() -> None:
    async with running(short(load_s=30.0)) as house:
        house.local.state = "cold"
        task = asyncio.create_task(asked(house, headers={"X-Appliance-Route": "local"}))
        await until(lambda: house.local.queue.snapshot.running == 1)
        assert house.local.wanting == 1
        turns_critical(house)
        async with asyncio.timeout(2):
            status, headers, _ = await task
        assert (status, headers["X-Appliance-Reason"]) == (503, "reject.thermal")
        assert house.local.wanting == 0, "so nobody wants the load any more"
        assert (house.engine.seen, house.local.queue.snapshot.running) == ([], 0)


async def test_a_request_that_waits_for_a_load_leaves_where_it_may() -> None:
    async with running(short(load_s=30.0)) as house:
        house.local.state = "loading"
        task = asyncio.create_task(asked(house))
        await until(lambda: house.local.queue.snapshot.running == 1)
        house.remote.up = True
        turns_critical(house)
        async with asyncio.timeout(2):
            status, headers, _ = await task
        assert (status, headers["X-Appliance-Reason"]) == (200, "remote.thermal")
        assert house.engine.seen == []


async def test_a_load_that_ends_in_the_moment_of_danger_starts_no_request() -> None:
    async with running(short(load_s=30.0)) as house:
        house.local.state = "loading"
        task = asyncio.create_task(asked(house, headers={"X-Appliance-Route": "local"}))
        await until(lambda: house.local.queue.snapshot.running == 1)
        house.local.state = "ready"
        house.local.loaded.set()
        turns_critical(house)
        async with asyncio.timeout(2):
            status, headers, _ = await task
        assert (status, headers["X-Appliance-Reason"]) == (503, "reject.thermal")
        assert house.engine.seen == []


async def test_batch_that_waits_goes_to_the_remote_while_it_eases_and_interactive_stays(busy: House) -> None:
    batch, interactive = await waiting(busy, {"headers": {"X-Appliance-Priority": "batch"}}, {})
    busy.local.thermal = "throttled"
    busy.local.queue.ease(EASED)
    async with asyncio.timeout(2):
        status, headers, _ = await batch
    assert (status, headers["X-Appliance-Reason"]) == (200, "remote.thermal")
    assert not interactive.done()
    interactive.cancel()


@pytest.mark.parametrize("headers", [{"X-Appliance-Route": "local"}, {}], ids=["local", "auto"])
async def test_a_plug_that_is_pulled_sends_away_what_may_leave(busy: House, headers: dict[str, str]) -> None:
    (task,) = await waiting(busy, {"headers": headers})
    busy.host.config = Settings(governor=Governor(battery="remote"))
    busy.machine = MonitorSnapshot(power="battery")
    busy.local.queue.look_again()
    if headers:
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        assert busy.far.seen == []
        task.cancel()
        return
    async with asyncio.timeout(2):
        status, got, _ = await task
    assert (status, got["X-Appliance-Reason"]) == (200, "remote.battery")


async def test_unknown_power_sends_nothing_away() -> None:
    async with running() as house:
        house.remote.up = True
        house.host.config = Settings(governor=Governor(battery="remote"))
        _, headers, _ = await asked(house)
        assert headers["X-Appliance-Reason"] == "local.ok"
        house.machine = MonitorSnapshot(power="battery")
        _, headers, _ = await asked(house)
        assert headers["X-Appliance-Reason"] == "remote.battery"
        house.remote.up = False
        _, headers, _ = await asked(house)
        assert headers["X-Appliance-Reason"] == "local.ok", "a battery is no reason to refuse"


async def test_looking_again_does_not_put_off_the_limit_of_the_wait(busy: House) -> None:
    busy.configure(max_wait=0.3)
    (task,) = await waiting(busy, {})
    async with asyncio.timeout(2):
        while not task.done():
            busy.local.queue.look_again()
            await asyncio.sleep(0.01)
    _, headers, _ = await task
    assert headers["X-Appliance-Reason"] == "remote.queue"
