"""`Cache-Control: no-store`: the prompt is kept apart inside the engine, and never told to a saved file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from appliance.engines import Endpoint
from appliance.engines.slots import Privacy
from appliance.gateway.ask import no_store_of
from appliance.gateway.data import GATE
from tests.gateway.house import TINY, House, until
from tests.gateway.house import house as running
from tests.gateway.upstream import Script

NO_STORE = {"Cache-Control": "no-store"}


@pytest.fixture
async def wide() -> AsyncIterator[House]:
    """An engine with three slots."""
    async with running(slots=3, max_queue=4) as made:
        yield made


def book(house: House) -> tuple[Privacy, Endpoint]:
    endpoint = house.local.endpoint(TINY)
    assert endpoint is not None
    return house.runner.app[GATE].privacy, endpoint


@pytest.mark.parametrize(
    ("lines", "forbids"),
    [
        ((), False),
        (("no-cache",), False),
        (("no-store",), True),
        (("max-age=0, No-Store",), True),
        (("no-cache", "no-store, no-transform"), True),
        (("x-no-store",), False),
    ],
)
def test_the_header_as_http_writes_it(lines: tuple[str, ...], forbids: bool) -> None:
    assert no_store_of(lines) is forbids


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/batch/v1/chat/completions"])
async def test_it_goes_into_a_slot_that_is_not_saved(wide: House, path: str) -> None:
    async with wide.post(path, headers=NO_STORE, prompt="x", id_slot=0) as got:
        assert got.status == 200
    async with wide.post(path, prompt="x") as got:
        assert got.status == 200
    secret, ordinary = wide.engine.seen
    assert secret.body["id_slot"] == 2
    assert "id_slot" not in ordinary.body
    privacy, endpoint = book(wide)
    assert privacy.slots(endpoint) == {2}
    assert not privacy.forbids_all(endpoint)


async def test_two_at_once_do_not_wait_for_each_other(wide: House) -> None:
    hold = asyncio.Event()
    wide.engine.script = Script(first=hold)
    both = [asyncio.ensure_future(wide.post(headers=NO_STORE).__aenter__()) for _ in range(2)]
    await until(lambda: len(wide.engine.seen) == 2, 5.0)
    assert {seen.body["id_slot"] for seen in wide.engine.seen} == {1, 2}
    hold.set()
    for got in await asyncio.gather(*both):
        assert got.status == 200
        got.close()


async def test_several_choices_take_slots_that_nobody_knows(wide: House) -> None:
    wide.engine.script = Script(choices=2)
    async with wide.post(headers=NO_STORE, n=2) as got:
        assert got.status == 200
    privacy, endpoint = book(wide)
    assert "id_slot" not in wide.engine.seen[0].body
    assert privacy.forbids_all(endpoint)


@pytest.mark.parametrize("secret_first", [True, False])
async def test_an_ordinary_request_that_fails_before_it_begins_counts_after_a_secret_one(
    wide: House, secret_first: bool
) -> None:
    if secret_first:
        async with wide.post(headers=NO_STORE) as got:
            assert got.status == 200
    error = {"code": 400, "message": "exceeds the available context size", "type": "invalid_request_error"}
    wide.engine.script = Script(status=400, error=error)
    async with wide.post() as got:
        assert got.status == 400
    privacy, endpoint = book(wide)
    assert privacy.forbids_all(endpoint) is secret_first


async def test_a_remote_is_not_told_of_slots(wide: House) -> None:
    wide.remote.up = True
    async with wide.post(headers=NO_STORE | {"X-Appliance-Route": "remote"}) as got:
        assert got.status == 200
    assert "id_slot" not in wide.far.seen[0].body
    privacy, endpoint = book(wide)
    assert privacy.slots(endpoint) == frozenset()
