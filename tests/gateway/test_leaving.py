"""A client that goes away: the upstream is closed, the slot is free, nobody else notices."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from appliance.gateway.downstream import ClientGone, Downstream
from tests.gateway.house import House, until
from tests.gateway.upstream import Script


async def _gone(house: House, n: int = 0) -> None:
    async with asyncio.timeout(1):
        await house.engine.seen[n].gone.wait()


async def _settled(house: House, *, running: int, waiting: int) -> None:
    queue = house.local.queue
    await until(lambda: (queue.snapshot.running, queue.snapshot.waiting) == (running, waiting))


def _ask(house: House, **body: Any) -> asyncio.Task[int]:
    async def one() -> int:
        async with house.post(**body) as got:
            await got.read()
            return int(got.status)

    return asyncio.create_task(one())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("when", ["before headers", "in prefill", "in decode"])
async def test_leaving_closes_the_upstream_and_frees_the_slot_within_a_second(
    house: House, when: str, stream: bool
) -> None:
    script = Script(breaks_after=1, breakage="hang")
    if when == "before headers":
        script = Script(before_headers=asyncio.Event())
    elif when == "in prefill":
        script = Script(first=asyncio.Event())
    house.engine.script = script
    asked = _ask(house, stream=stream)
    await house.engine.arrived.get()
    if when == "in decode":
        await until(lambda: len(house.engine.seen[0].events) == 2)
    asked.cancel()
    await _gone(house)
    await _settled(house, running=0, waiting=0)
    row = await house.row()
    assert row.status == 499
    assert row.route == "local"
    house.engine.script = Script()
    async with house.post() as got:
        assert got.status == 200


async def test_leaving_a_remote_closes_it_too_and_counts_as_nobodys_fault(house: House) -> None:
    house.remote.up = True
    house.far.script = Script(first=asyncio.Event())

    async def one() -> None:
        async with house.post(headers={"X-Appliance-Route": "remote"}, stream=True) as got:
            await got.read()

    asked = asyncio.create_task(one())
    seen = await house.far.arrived.get()
    asked.cancel()
    async with asyncio.timeout(1):
        await seen.gone.wait()
    assert (await house.row()).status == 499
    assert house.remote.reports == ["cancelled"]


async def test_a_queued_client_that_leaves_never_touches_anothers_slot(house: House) -> None:
    first = house.engine.script.first = asyncio.Event()
    runner = _ask(house, stream=True)
    await house.engine.arrived.get()
    leaver = _ask(house, stream=True)
    await _settled(house, running=1, waiting=1)
    stayer = _ask(house)
    await _settled(house, running=1, waiting=2)
    leaver.cancel()
    await _settled(house, running=1, waiting=1)
    left = await house.row()
    assert (left.route, left.reason, left.status) == ("none", "local.queued", 499)
    assert not house.engine.seen[0].gone.is_set()
    assert len(house.engine.seen) == 1
    first.set()
    assert await runner == 200
    assert await stayer == 200
    assert len(house.engine.seen) == 2, "the one who left never reached the engine"
    await _settled(house, running=0, waiting=0)


async def test_a_stream_that_broke_is_an_error_even_if_the_client_leaves_at_once(house: House) -> None:
    house.engine.script = Script(breaks_after=1, breakage="die")
    async with house.post(stream=True) as got:
        while b'"error":' not in await got.content.readany():
            pass
        got.close()
    row = await house.row()
    assert (row.route, row.status, row.tokens_out) == ("local", 502, None)


async def test_a_client_that_leaves_while_it_hears_of_the_error_left_a_broken_stream(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> None:
        raise ClientGone

    house.engine.script = Script(breaks_after=1, breakage="die")
    monkeypatch.setattr(Downstream, "fail", gone)
    with pytest.raises(aiohttp.ClientError):
        async with house.post(stream=True) as got:
            await got.read()
    assert (await house.row()).status == 502


async def test_a_full_queue_answers_429_with_a_time_to_come_back(house: House) -> None:
    first = house.engine.script.first = asyncio.Event()
    others = [_ask(house) for _ in range(3)]
    await _settled(house, running=1, waiting=2)
    async with house.post(stream=True) as got:
        assert got.status == 429
        assert got.headers["X-Appliance-Reason"] == "reject.queue_full"
        assert got.headers["X-Appliance-Route"] == "none"
        assert 1 <= int(got.headers["Retry-After"]) <= 120
        assert (await got.json())["error"]["type"] == "rate_limit_error"
    first.set()
    assert list(await asyncio.gather(*others)) == [200, 200, 200]


async def test_the_batch_lane_waits_for_the_interactive_one(house: House) -> None:
    first = house.engine.script.first = asyncio.Event()
    holder = _ask(house)
    await house.engine.arrived.get()
    batch = _ask(house, path="/batch/v1/chat/completions")
    await _settled(house, running=1, waiting=1)
    assert house.local.queue.snapshot.lanes["batch"] == 1
    quick = _ask(house, user="quick")
    await _settled(house, running=1, waiting=2)
    first.set()
    assert list(await asyncio.gather(holder, batch, quick)) == [200, 200, 200]
    assert [seen.body.get("user") for seen in house.engine.seen] == [None, "quick", None]
    assert [seen.path for seen in house.engine.seen] == ["/v1/chat/completions"] * 3
    lanes = [(await house.row()).lane for _ in range(3)]
    assert sorted(lanes) == ["batch", "interactive", "interactive"]


async def test_many_clients_that_come_and_go_lose_no_slot(house: House) -> None:
    house.local.queue.resize(3, max_queue=100)
    house.engine.script = Script(piece=16)
    tasks = [_ask(house, stream=n % 2 == 0) for n in range(60)]
    for n, task in enumerate(tasks):
        if n % 3 == 0:
            await asyncio.sleep(0.002)
            task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert {status for status in done if not isinstance(status, BaseException)} == {200}
    await _settled(house, running=0, waiting=0)
