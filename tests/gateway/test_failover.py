"""Another side answers only before the first delta, only where it may, and says so."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.faults import DOWN, FAILING, read
from tests.gateway.house import LOCAL_MODEL, REMOTE_MODEL, House, short, until
from tests.gateway.house import house as running
from tests.gateway.upstream import Script


def _dead_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        return f"http://127.0.0.1:{gone.getsockname()[1]}"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", DOWN.values(), ids=DOWN)
async def test_before_the_first_delta_the_remote_takes_over(
    house: House, script: Script, stream: bool
) -> None:
    house.remote.up = True
    house.engine.script = script
    async with house.post(stream=stream) as got:
        assert got.status == 200
        assert got.headers["X-Appliance-Route"] == "remote"
        assert got.headers["X-Appliance-Reason"] == "remote.engine_down"
        assert got.headers["X-Appliance-Model"] == REMOTE_MODEL
        assert got.headers["X-Appliance-Degraded"] == "remote"
        raw = await got.read()
    assert b"decode failed" not in raw
    assert LOCAL_MODEL.encode() not in raw, "a stream never mixes two sides"
    assert house.far.seen[0].headers["Authorization"] == "Bearer remote-key"
    assert house.far.seen[0].body["model"] == REMOTE_MODEL
    assert house.remote.reports == ["ok"]
    row = await house.row()
    assert (row.route, row.served_model, row.status, row.degraded) == ("remote", REMOTE_MODEL, 200, "remote")


async def test_a_refused_connection_moves_over_too_and_the_slot_is_free(house: House) -> None:
    house.remote.up = True
    house.local.url = _dead_url()
    async with house.post() as got:
        assert got.headers["X-Appliance-Route"] == "remote"
    assert house.local.queue.snapshot.running == 0


async def test_the_first_upstream_is_closed_before_the_second_is_opened() -> None:
    async with running(short(first_token_s=0.1)) as house:
        house.remote.up = True
        house.engine.script = Script(first=asyncio.Event())
        house.far.script = Script(before_headers=asyncio.Event())
        asked = asyncio.create_task(read(house, stream=True))
        await house.far.arrived.get()
        async with asyncio.timeout(2):
            await house.engine.seen[0].gone.wait()
        assert house.local.queue.snapshot.running == 0, "the slot is free while the remote answers"
        assert house.far.script.before_headers is not None
        house.far.script.before_headers.set()
        status, headers, _ = await asked
        assert (status, headers["X-Appliance-Route"]) == (200, "remote")


async def test_after_pending_headers_the_side_may_still_change() -> None:
    async with running(short(hold_s=0.02, first_token_s=0.3)) as house:
        house.remote.up = True
        house.engine.script = Script(first=asyncio.Event())
        status, headers, raw = await read(house, stream=True)
        assert (status, headers["X-Appliance-Route"]) == (200, "pending")
        assert b'"route":"remote"' in raw
        assert LOCAL_MODEL.encode() not in raw
        assert raw.endswith(b"data: [DONE]\n\n")


async def test_after_pending_headers_a_rejection_is_an_error_event() -> None:
    async with running(short(hold_s=0.02, first_token_s=0.3)) as house:
        house.engine.script = Script(first=asyncio.Event())
        status, headers, raw = await read(house, stream=True)
        assert (status, headers["X-Appliance-Route"]) == (200, "pending")
        assert b"[DONE]" not in raw
        assert b'"error":' in raw
        assert b'"route":"none"' in raw
        assert (await house.row()).status == 503


async def test_both_sides_failing_is_one_truthful_error_and_no_ping_pong(house: House) -> None:
    house.remote.up = True
    house.engine.script = Script(breaks_after=0, breakage="die")
    house.far.script = Script(status=500)
    async with house.post() as got:
        assert got.status == 503
        assert got.headers["X-Appliance-Route"] == "none"
        assert got.headers["X-Appliance-Reason"] == "reject.unavailable"
        assert 1 <= int(got.headers["Retry-After"]) <= 120
        assert int(got.headers["retry-after-ms"]) == 1000 * int(got.headers["Retry-After"])
    assert (len(house.engine.seen), len(house.far.seen)) == (1, 1)


async def test_a_prompt_too_long_here_goes_only_to_a_larger_context(house: House) -> None:
    house.remote.up = True
    house.engine.script = Script(status=400, error={
        "code": 400, "type": "exceed_context_size_error", "message": "request (5000 tokens) exceeds",
        "n_prompt_tokens": 5000, "n_ctx": 4096})  # fmt: skip
    async with house.post() as got:
        assert (got.status, got.headers["X-Appliance-Reason"]) == (200, "remote.context")
    house.remote.max_model_len = 4096
    async with house.post() as got:
        assert got.status == 400
        error = (await got.json())["error"]
        assert error["code"] == "context_length_exceeded"
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (5000, 4096)
        assert got.headers["X-Appliance-Reason"] == "reject.context"
        assert got.headers["X-Appliance-Route"] == "none"


async def test_long_requests_after_short_ones_send_the_next_away_at_once(house: House) -> None:
    async with house.post() as got:
        await got.read()
    house.remote.up = True
    house.engine.script = Script(first=asyncio.Event())
    running_one = asyncio.create_task(read(house, stream=True))
    while len(house.engine.seen) < 2:
        await house.engine.arrived.get()
    usual = house.local.queue.clock
    house.local.queue.clock = lambda: usual() + 120  # two minutes later
    async with house.post() as got:
        assert got.headers["X-Appliance-Reason"] == "remote.queue"
    assert house.engine.script.first is not None
    house.engine.script.first.set()
    assert (await running_one)[0] == 200


async def test_a_request_that_waits_too_long_leaves_the_queue_for_the_remote(house: House) -> None:
    house.configure(max_wait=0.0)
    house.engine.script = Script(first=asyncio.Event())
    running_one = asyncio.create_task(read(house, stream=True))
    await house.engine.arrived.get()
    house.configure(max_wait=0.05)
    waiting = asyncio.create_task(read(house))
    await until(lambda: house.local.queue.snapshot.waiting == 1)
    house.remote.up = True
    status, headers, _ = await waiting
    assert (status, headers["X-Appliance-Reason"]) == (200, "remote.queue")
    assert house.local.queue.snapshot.waiting == 0
    assert house.local.queue.snapshot.running == 1
    assert house.engine.script.first is not None
    house.engine.script.first.set()
    assert (await running_one)[0] == 200


async def test_a_model_that_is_not_loaded_is_told_to_be_missed_when_a_remote_answers(house: House) -> None:
    house.remote.up = True
    house.local.state = "cold"
    async with house.post() as got:
        assert got.headers["X-Appliance-Reason"] == "remote.loading"
    assert house.local.misses == [LOCAL_MODEL]


async def test_a_request_for_a_model_that_is_not_loaded_wants_it_until_its_end(house: House) -> None:
    house.local.state = "cold"
    asked = asyncio.create_task(read(house, stream=False))
    await until(lambda: house.local.wanting == 1)
    assert not asked.done()
    house.local.state = "ready"
    house.local.loaded.set()
    status, _, _ = await asked
    assert status == 200
    assert house.local.wanting == 0
    assert house.local.misses == []


async def test_a_request_waits_for_an_engine_that_loads() -> None:
    async with running() as house:
        house.local.state = "loading"
        asked = asyncio.create_task(read(house))
        await until(lambda: house.local.queue.snapshot.running == 1)
        house.local.state = "ready"
        house.local.loaded.set()
        status, headers, _ = await asked
        assert (status, headers["X-Appliance-Route"]) == (200, "local")


_STATES = st.fixed_dictionaries({
    "state": st.sampled_from(["ready", "busy", "failed", "absent", "stopping"]),
    "thermal": st.sampled_from(["cool", "warm", "throttled", "critical", "unknown"]),
    "script": st.sampled_from([Script(), *FAILING.values(), Script(breaks_after=1), Script(status=400)]),
    "ctx": st.sampled_from([None, 1, 4096]),
    "policy": st.sampled_from(["local-only", "local-first", "fastest", "remote-only"]),
    "stream": st.booleans(),
    "wish": st.sampled_from(["local", "auto"]),
})  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(_STATES)
def test_local_never_leaves_whatever_the_state_is(scene: dict[str, Any]) -> None:
    async def play() -> None:
        async with running() as house:
            house.remote.up = True
            house.local.state, house.local.thermal = scene["state"], scene["thermal"]
            house.local.ctx, house.engine.script = scene["ctx"], scene["script"]
            house.configure(policy=scene["policy"])
            pinned = scene["wish"] == "local" or scene["policy"] == "local-only"
            headers = {"X-Appliance-Route": scene["wish"]}
            async with house.post(headers=headers, stream=scene["stream"]) as got:
                await got.read()
                if pinned:
                    assert got.headers["X-Appliance-Route"] != "remote"
            if pinned:
                assert house.far.seen == []

    asyncio.run(play())
