"""A living engine is never a reason to send a prompt away; one that died is waited for."""

from __future__ import annotations

import asyncio

import pytest

from appliance.engines import Endpoint
from tests.gateway.faults import DOWN, ODD, read
from tests.gateway.house import House
from tests.gateway.upstream import Script


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", ODD.values(), ids=ODD)
async def test_an_engine_that_answers_nonsense_is_no_reason_to_send_the_prompt_away(
    house: House, script: Script, stream: bool
) -> None:
    house.remote.up = True
    house.engine.script = script
    async with house.post(stream=stream) as got:
        assert got.status == 502
        assert got.headers["X-Appliance-Route"] == "local"
        assert got.headers["x-should-retry"] == "false"
        assert "engine is failed" not in await got.text()
    assert house.far.seen == []
    row = await house.row()
    assert (row.route, row.status) == ("local", 502)
    async with house.post() as got:
        await got.read()
    assert len(house.engine.seen) == 2, "the engine is asked again by the next request"


async def test_an_answer_of_an_engine_that_is_gone_counts_as_down(house: House) -> None:
    house.remote.up = True
    before_headers = asyncio.Event()
    house.engine.script = Script(status=500, before_headers=before_headers)
    asked = asyncio.create_task(read(house))
    await house.engine.arrived.get()
    house.local.state = "starting"
    before_headers.set()
    status, headers, _ = await asked
    assert (status, headers["X-Appliance-Reason"]) == (200, "remote.engine_down")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("message", [
    "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
    "Failed to parse tools: Missing tool type: {}; tools = [\n  {}\n]",
    "Failed to parse messages: [json.exception.type_error.302] type must be string, but is number",
    "Failed to initialize samplers: failed to parse grammar",
])  # fmt: skip
async def test_a_500_that_blames_the_request_is_a_400(house: House, message: str, stream: bool) -> None:
    house.remote.up = True
    house.engine.script = Script(status=500, error={"code": 500, "message": message, "type": "server_error"})
    async with house.post(stream=stream) as got:
        assert got.status == 400
        assert got.headers["X-Appliance-Route"] == "none"
        assert got.headers["X-Appliance-Reason"] == "reject.unsupported"
        assert (await got.json())["error"]["type"] == "invalid_request_error"
    assert house.far.seen == []


@pytest.mark.parametrize("message", [
    "input (803 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
    "Requested tokens (803) exceed batch size of 512",
])  # fmt: skip
async def test_a_text_that_is_too_long_for_one_piece_is_told_its_length_and_the_limit(
    house: House, message: str
) -> None:
    house.engine.script = Script(status=500, error={"code": 500, "message": message, "type": "server_error"})
    async with house.post("/v1/embeddings", model="embedder", input="x") as got:
        assert got.status == 400
        assert got.headers["X-Appliance-Reason"] == "reject.context"
        error = (await got.json())["error"]
    assert error["message"] == "The input has 803 tokens; this model takes at most 512 of one text."
    assert (error["code"], error["n_prompt_tokens"], error["n_ctx"]) == ("context_length_exceeded", 803, 512)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [DOWN["dies"], DOWN["ends"]])
async def test_an_engine_that_died_is_waited_for_when_no_remote_may_answer(
    house: House, script: Script, stream: bool
) -> None:
    house.engine.script = script
    asked = asyncio.create_task(read(house, stream=stream))
    await house.engine.arrived.get()
    house.local.state = "starting"
    house.engine.script = Script()
    house.local.own = Endpoint(house.engine.url, None, "engine-key", 2)
    async with asyncio.timeout(2):
        await house.engine.seen[0].over.wait()
    assert house.local.queue.snapshot.running == 1, "it keeps its place"
    house.local.state = "ready"
    house.local.loaded.set()
    status, headers, raw = await asked
    assert (status, headers["X-Appliance-Reason"]) == (200, "local.ok")
    assert "日本語".encode() in raw
    assert len(house.engine.seen) == 2
    assert house.local.queue.snapshot.running == 0


async def test_an_engine_that_dies_twice_under_a_request_is_not_waited_for_again(house: House) -> None:
    house.engine.script = DOWN["dies"]
    asked = asyncio.create_task(read(house))
    await house.engine.arrived.get()
    house.local.own = Endpoint(house.engine.url, None, "engine-key", 2)
    status, headers, raw = await asked
    assert (status, headers["X-Appliance-Reason"]) == (503, "reject.unavailable")
    assert len(house.engine.seen) == 2
    assert b"no remote is configured" not in raw, "one is, and it is down"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
async def test_a_4xx_never_changes_sides(house: House, status: int) -> None:
    house.remote.up = True
    house.engine.script = Script(
        status=status, error={"code": status, "message": "bad thing", "type": "x_error"}
    )
    async with house.post() as got:
        assert got.status == status
        error = (await got.json())["error"]
        assert (error["message"], error["code"]) == ("bad thing", "x_error")
        assert got.headers.get("x-should-retry") == ("false" if status == 501 else None)
        assert got.headers["X-Appliance-Reason"] == "reject.unsupported"
    assert house.far.seen == []
