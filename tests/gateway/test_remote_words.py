"""What a remote says: its mapping, its errors without keys, its wish to be left alone, its reasoning."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from appliance.gateway import failures
from appliance.gateway.sinks import StreamSink
from tests.gateway.house import LOCAL_MODEL, REMOTE_MODEL, House, until
from tests.gateway.upstream import DELTAS, Script

_AWAY = {"X-Appliance-Route": "remote"}


async def test_a_mapping_by_quant_is_used_and_not_only_offered(house: House) -> None:
    house.remote.up = True
    house.remote.mapping = {LOCAL_MODEL: "org/Other"}
    async with house.post(headers=_AWAY) as got:
        assert got.status == 200
    assert house.far.seen[0].body["model"] == "org/Other"


@pytest.mark.parametrize(("status", "outcome"), [(429, "4xx"), (503, "5xx"), (500, "5xx")])
@pytest.mark.parametrize(("header", "wish", "told"), [("30", 30.0, 30), ("0", 0.0, 1), ("900", 900.0, 120)])
async def test_a_retry_after_reaches_the_breaker_and_the_client(
    house: House, status: int, outcome: str, header: str, wish: float, told: int
) -> None:
    house.remote.up = True
    house.far.script = Script(status=status, retry_after=header)
    async with house.post(headers=_AWAY) as got:
        assert got.status == 503
        assert got.headers["Retry-After"] == str(told)
    assert house.remote.reports == [outcome]
    assert house.remote.wishes == [wish]


async def test_without_a_retry_after_the_usual_one_holds(house: House) -> None:
    house.remote.up = True
    house.far.script = Script(status=503)
    async with house.post(headers=_AWAY) as got:
        assert got.headers["Retry-After"] == "10"
    assert house.remote.wishes == [None]


_FOUL = "bad \x1b[31mthing\u202e: Bearer abc.def, sk-0123456789 and the-remotes-own-key\r\nX: y"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "script",
    [
        Script(status=400, error={"message": _FOUL, "code": _FOUL, "param": _FOUL, "type": _FOUL}),
        Script(status=500, error={"message": _FOUL, "code": _FOUL}),
        Script(breaks_after=0, breakage="error", error={"message": _FOUL, "code": 400, "param": _FOUL}),
        Script(breaks_after=0, breakage="error", error={"message": _FOUL, "code": 500}),
        Script(breaks_after=1, breakage="error", error={"message": _FOUL, "code": _FOUL}),
    ],
)
async def test_no_key_and_no_control_character_of_a_remote_passes(
    house: House, script: Script, stream: bool
) -> None:
    house.remote.up = True
    house.remote.key = "the-remotes-own-key"
    house.far.script = script
    async with house.post(headers=_AWAY, stream=stream) as got:
        raw = (await got.read()).decode()
    error = json.loads(next(line for line in raw.splitlines() if '"error"' in line).removeprefix("data: "))
    said = "".join(str(value) for value in error["error"].values())
    assert "bad [31mthing: [key] [key] and [key]" in said
    for forbidden in ("\x1b", "\u202e", "\r", "\n", "abc.def", "sk-0123", "own-key"):
        assert forbidden not in said


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (400, {"type": "exceed_context_size_error", "message": "x", "n_prompt_tokens": 9}, "context"),
        (400, {"code": "context_length_exceeded", "message": "x"}, "context"),
        (400, {"param": "input_tokens", "message": "x", "code": 400}, "context"),
        (200, {"code": 400, "message": "This model's maximum context length is 10"}, "context"),
        (400, {"message": "other"}, "bad_request"),
        (500, "broken", "server"),
    ],
)
def test_all_dialects_are_read_in_one_way(status: int, error: Any, expected: str) -> None:
    for body in ({"error": error}, json.dumps({"error": error}).encode()):
        told = failures.read(status, body)
        assert told.kind == expected
        assert told.status == (400 if status == 200 else status)
    assert failures.read(500, b"<html><title>Bad gateway</title>").message == "a web page: Bad gateway"


_THOUGHT: tuple[dict[str, Any], ...] = ({"reasoning": "hm, "}, {"reasoning": "é"}, *DELTAS)


async def test_a_remotes_reasoning_has_both_names_in_a_plain_reply(house: House) -> None:
    house.remote.up = True
    house.far.script = Script(deltas=_THOUGHT)
    async with house.post(headers=_AWAY) as got:
        message = (await got.json())["choices"][0]["message"]
    assert message["reasoning"] == message["reasoning_content"] == "hm, é"


async def test_a_remotes_reasoning_has_both_names_in_each_delta(house: House) -> None:
    house.remote.up = True
    house.far.script = Script(deltas=_THOUGHT)
    async with house.post(headers=_AWAY, stream=True) as got:
        raw = await got.read()
    events = [json.loads(e[6:]) for e in raw.split(b"\n\n") if e.startswith(b"data: {")]
    deltas = [e["choices"][0]["delta"] for e in events]
    assert [d.get("reasoning_content") for d in deltas if "reasoning" in d] == ["hm, ", "é"]
    for sent in house.far.seen[0].events:
        if b'"reasoning"' not in sent and b'"stop"' not in sent and b"usage" not in sent:
            assert sent in raw, "every other event is as it came"


async def test_a_local_stream_stays_as_it_came_whatever_it_is_called(house: House) -> None:
    house.engine.script = Script(deltas=_THOUGHT)
    async with house.post(stream=True) as got:
        raw = await got.read()
    assert b"reasoning_content" not in raw
    assert all(sent in raw for sent in house.engine.seen[0].events if b'"reasoning"' in sent)


@pytest.mark.parametrize("away", [True, False])
async def test_a_client_that_hangs_up_right_after_done_was_answered(
    house: House, away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler is caught between [DONE] and its own end, where the cancel finds it."""
    reached = asyncio.Event()

    async def slow_end(_: StreamSink) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(StreamSink, "end", slow_end)
    house.remote.up = True
    async with house.post(headers=_AWAY if away else {}, stream=True) as got:
        while b"[DONE]" not in await got.content.readuntil(b"\n\n"):
            pass
        await reached.wait()
        got.close()
    row = await house.row()
    assert (row.status, row.served_model) == (200, REMOTE_MODEL if away else LOCAL_MODEL)
    if away:
        assert house.remote.reports == ["ok"]
    else:
        await until(lambda: house.local.queue.snapshot.running == 0)
        assert [done.ok for done in house.local.outcomes] == [True]
