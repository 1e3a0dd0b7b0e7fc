"""A remote that fails, or refuses the appliance, is no client's problem while this machine can answer."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.faults import FAILING, read
from tests.gateway.house import LOCAL_MODEL, House
from tests.gateway.upstream import Script


async def test_hot_with_a_remote_that_fails_is_still_a_matter_of_heat(house: House) -> None:
    house.remote.up = True
    house.local.thermal = "critical"
    house.far.script = Script(status=500)
    async with house.post() as got:
        assert (got.status, got.headers["X-Appliance-Reason"]) == (503, "reject.thermal")
        assert "it has just failed" in (await got.json())["error"]["message"]


@pytest.mark.parametrize("script", FAILING.values(), ids=FAILING)
async def test_a_failing_remote_falls_back_to_the_local_side(house: House, script: Script) -> None:
    house.remote.up = True
    house.configure(policy="fastest")
    house.local.thermal = "critical"  # the router sends it away
    house.far.script = script
    asked = asyncio.create_task(read(house))
    seen = await house.far.arrived.get()
    house.local.thermal = "cool"
    status, headers, _ = await asked
    assert seen.headers["Authorization"] == "Bearer remote-key"
    assert (status, headers["X-Appliance-Route"]) == (200, "local")
    assert headers["X-Appliance-Reason"] == "local.fallback"
    assert headers["X-Appliance-Model"] == LOCAL_MODEL
    assert house.remote.reports != ["ok"]
    assert len(house.remote.reports) == 1


async def test_a_remote_that_refuses_our_key_is_our_fault_and_not_retried(house: House) -> None:
    house.remote.up = True
    house.far.script = Script(status=401)
    async with house.post(headers={"X-Appliance-Route": "remote"}) as got:
        assert got.status == 502
        assert got.headers["x-should-retry"] == "false"
    assert house.remote.reports == ["4xx"]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_remote_that_refuses_the_appliance_is_not_the_clients_problem(
    house: House, status: int
) -> None:
    house.remote.up = True
    house.local.state = "loading"  # the router sends it away
    error = {"code": status, "message": "no", "type": "NotFoundError", "param": "model"}
    house.far.script = Script(status=status, error=error, before_headers=asyncio.Event())
    asked = asyncio.create_task(read(house))
    await house.far.arrived.get()
    house.local.state = "ready"
    assert house.far.script.before_headers is not None
    house.far.script.before_headers.set()
    got, headers, _ = await asked
    assert (got, headers["X-Appliance-Reason"]) == (200, "local.fallback")
    assert house.remote.reports == ["4xx"]


async def test_a_remote_that_refuses_the_appliance_is_named_when_nobody_else_can_answer(house: House) -> None:
    house.remote.up = True
    house.local.state = "failed"
    house.far.script = Script(status=401)
    async with house.post() as got:
        assert got.status == 502
        assert (await got.json())["error"]["code"] == "remote_key"
        assert got.headers["X-Appliance-Route"] == "remote"


async def test_a_400_of_a_remote_is_the_requests_own_and_stays(house: House) -> None:
    house.remote.up = True
    house.local.thermal = "critical"
    house.far.script = Script(status=400, before_headers=asyncio.Event())
    asked = asyncio.create_task(read(house))
    await house.far.arrived.get()
    house.local.thermal = "cool"
    assert house.far.script.before_headers is not None
    house.far.script.before_headers.set()
    assert (await asked)[0] == 400
    assert house.engine.seen == []


async def test_a_field_that_the_remote_cannot_honour_is_a_400_when_only_it_may_answer(house: House) -> None:
    house.remote.up = True
    async with house.post(headers={"X-Appliance-Route": "remote"}, untranslatable=1) as got:
        assert got.status == 400
        assert "untranslatable" in (await got.json())["error"]["message"]
    assert house.far.seen == []
