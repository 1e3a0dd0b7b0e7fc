"""Plain replies are put together from a stream and equal the upstream's own, field by field."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.gateway.assemble import Assembler, ReplyTooLong
from tests.gateway.house import House, short
from tests.gateway.house import house as running
from tests.gateway.upstream import CALLS, DELTAS, Script

_SCRIPTS = {
    "text": Script(),
    "split bytes": Script(piece=1),
    "tools": Script(deltas=CALLS, finish="tool_calls"),
    "text and tools": Script(deltas=({"content": "I add."}, *CALLS), finish="tool_calls"),
    "reasoning": Script(deltas=({"reasoning_content": "hm, "}, {"reasoning_content": "é"}, *DELTAS)),
    "logprobs": Script(logprobs=True),
    "two choices": Script(choices=2),
    "two choices with logprobs": Script(choices=2, logprobs=True, piece=13),
    "nothing said": Script(deltas=(), finish="length"),
    "pings before": Script(pings=3),
}
_TEXT_ONLY = ("text", "split bytes", "logprobs", "two choices", "two choices with logprobs", "nothing said")


@pytest.mark.parametrize(
    ("path", "name"),
    [("/v1/chat/completions", name) for name in _SCRIPTS]
    + [("/v1/completions", name) for name in _TEXT_ONLY],
)
async def test_an_assembled_reply_equals_the_upstreams_own(house: House, path: str, name: str) -> None:
    house.local.queue.resize(2)
    script = house.engine.script = _SCRIPTS[name]
    async with house.post(path, prompt="x", n=script.choices) as got:
        assert got.status == 200
        assert got.content_type == "application/json"
        reply: dict[str, Any] = await got.json()
        told = reply.pop("appliance")
        assert told["request_id"] == got.headers["X-Request-Id"]
        assert told["model"] == reply["model"] == got.headers["X-Appliance-Model"]
    assert house.engine.seen[-1].body["stream"] is True
    async with house.http.post(house.engine.url + path, json={}) as own:
        assert reply == await own.json()


@pytest.mark.parametrize("breakage", ["die", "eof", "error", "error_done", "garbage", "false_done"])
async def test_a_reply_that_broke_off_is_an_error_with_a_status(house: House, breakage: Any) -> None:
    house.engine.script = Script(breaks_after=1, breakage=breakage)
    house.remote.up = True
    async with house.post() as got:
        assert got.status == 502
        error = (await got.json())["error"]
        assert error["message"]
        assert error["appliance"]["route"] == got.headers["X-Appliance-Route"] == "local"
    assert house.far.seen == []


async def test_a_reply_without_end_is_refused_and_the_upstream_closed() -> None:
    async with running(short(reply_bytes=200_000)) as house:
        house.engine.script = Script(flood=2_000)
        async with house.post() as got:
            assert got.status == 502
        async with asyncio.timeout(2):
            await house.engine.seen[0].gone.wait()


@given(st.lists(st.text(min_size=1), min_size=1, max_size=6), st.permutations([0, 1, 2]))
def test_choices_and_their_texts_come_together_in_any_order(texts: list[str], order: list[int]) -> None:
    made = Assembler(1_000_000)
    for text in texts:
        for index in order:
            made.add({"choices": [{"index": index, "delta": {"content": f"{text}{index}"}}]}, 1)
    for index in order:
        made.add({"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]}, 1)
    choices = made.reply()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    for index, choice in enumerate(choices):
        assert choice["message"]["content"] == "".join(f"{text}{index}" for text in texts)


def test_a_refusal_and_a_vendors_own_fields_stay() -> None:
    made = Assembler(1_000)
    made.add({"object": "chat.completion.chunk", "service_tier": "x", "choices": [
        {"index": 0, "delta": {"role": "assistant", "refusal": "I "}, "stop_reason": None}]}, 1)  # fmt: skip
    made.add({"service_tier": None, "choices": [
        {"index": 0, "delta": {"refusal": "no"}, "stop_reason": 7, "finish_reason": "stop"}]}, 1)  # fmt: skip
    assert made.reply() == {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": None, "refusal": "I no"},
                     "stop_reason": 7, "finish_reason": "stop"}],
        "object": "chat.completion",
        "service_tier": "x",
    }  # fmt: skip


def test_a_reply_has_a_limit() -> None:
    with pytest.raises(ReplyTooLong):
        Assembler(10).add({}, 11)
