"""What a journal row says of the machine: only of local replies, and how many ran at once."""

from __future__ import annotations

import asyncio
from typing import Any

from appliance.gateway.admission import Admission
from appliance.gateway.ports import Conditions
from tests.gateway.house import House, until
from tests.gateway.upstream import Script

_AWAY = {"X-Appliance-Route": "remote"}


async def answered(house: House, **body: Any) -> None:
    async with house.post(**body) as got:
        assert got.status == 200
        await got.read()


async def test_a_local_row_keeps_heat_power_and_plan(house: House) -> None:
    house.local.now = Conditions("throttled", "battery", "b10434/20/q8_0", ("GPU-1", "cpu"))
    await answered(house)
    row = await house.row()
    assert row.places == "GPU-1,cpu"
    assert (row.thermal, row.power, row.plan) == ("throttled", "battery", "b10434/20/q8_0")
    assert row.streams == 1
    assert house.local.outcomes[-1].streams == 1


async def test_what_can_not_be_read_stays_unknown(house: House) -> None:
    house.local.now = Conditions()
    await answered(house)
    row = await house.row()
    assert (row.thermal, row.power, row.plan, row.places) == (None, None, None, None)


async def test_the_machine_counts_as_it_is_at_the_end_of_the_reply(house: House) -> None:
    gate = asyncio.Event()
    house.engine.script = Script(first=gate)
    async with house.post(stream=True) as got:
        house.local.now = Conditions("critical", "ac", "p")
        gate.set()
        await got.read()
    assert (await house.row()).thermal == "critical"


async def test_a_remote_row_says_nothing_about_this_machine(house: House) -> None:
    house.remote.up = True
    async with house.post(headers=_AWAY) as got:
        assert got.status == 200
        await got.read()
    row = await house.row()
    assert row.route == "remote"
    assert (row.thermal, row.power, row.streams, row.plan) == (None, None, None, None)


async def test_one_that_joins_later_counts_for_the_one_before(house: House) -> None:
    """A reply that began alone was not alone all the time."""
    house.local.queue.resize(2)
    gate = asyncio.Event()
    house.engine.script = Script(first=gate)
    first = asyncio.create_task(answered(house))
    await until(lambda: len(house.engine.seen) == 1)
    second = asyncio.create_task(answered(house))
    await until(lambda: len(house.engine.seen) == 2)
    gate.set()
    await asyncio.gather(first, second)
    assert [(await house.row()).streams for _ in range(2)] == [2, 2]
    house.engine.script = Script()
    await answered(house)
    assert (await house.row()).streams == 1, "the next one has it to itself again"


async def test_each_choice_of_one_request_is_a_stream(house: House) -> None:
    house.local.queue.resize(3)
    house.engine.script = Script(choices=3)
    await answered(house, n=3)
    assert (await house.row()).streams == 3


def test_waiting_for_a_slot_is_not_running_beside_others() -> None:
    queue = Admission(1, 8)
    first, second = queue.enter("interactive"), queue.enter("interactive")
    first.__exit__(None, None, None)
    assert second.held
    assert (first.streams, second.streams) == (1, 1)
    queue.resize(2)
    third = queue.enter("batch")
    third.__exit__(None, None, None)
    fourth = queue.enter("batch")
    assert (second.streams, third.streams, fourth.streams) == (2, 2, 2)
