"""Several choices: a reply is complete when all that were asked have finished, or when the engine says so."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.gateway import chunks
from appliance.gateway.failures import UpstreamFailed
from appliance.gateway.relay import Track
from tests.gateway.house import House
from tests.gateway.upstream import Script, event

_ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"n": 4}),
    ("/v1/completions", {"n": 4, "prompt": "x"}),
    ("/v1/completions", {"prompt": ["a", "b", "c", "d"]}),
    ("/v1/completions", {"n": 2, "prompt": [[1, 2], [3]]}),
]


@pytest.fixture(autouse=True)
def four_slots(house: House) -> None:
    house.local.queue.resize(4)


@pytest.mark.parametrize("breakage", ["die", "eof"])
@pytest.mark.parametrize(("path", "body"), _ASKED)
async def test_two_of_four_choices_are_no_reply(
    house: House, path: str, body: dict[str, Any], breakage: Any
) -> None:
    """The engine streams one choice after the other and breaks when two are done."""
    house.engine.script = Script(choices=2, finishes=2, breakage=breakage)
    house.engine.script.done = False
    async with house.post(path, **body) as got:
        assert got.status == 502
        assert "error" in await got.json()
    async with house.post(path, stream=True, **body) as got:
        raw = await got.read()
    assert b'"error":' in raw
    assert b"[DONE]" not in raw
    assert [(await house.row()).status for _ in range(2)] == [502, 502]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_explicit_done_may_end_with_fewer(house: House, stream: bool) -> None:
    house.engine.script = Script(choices=2)
    async with house.post(n=4, stream=stream) as got:
        assert got.status == 200
        raw = await got.read()
    assert b'"error":' not in raw
    assert (await house.row()).status == 200


async def test_all_that_were_asked_need_no_done(house: House) -> None:
    house.engine.script = Script(choices=4, done=False)
    async with house.post(n=4) as got:
        assert got.status == 200
        assert len((await got.json())["choices"]) == 4


def _end(index: int) -> chunks.Chunk:
    made = event({"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]})
    return chunks.read(made.encode())


def test_done_proves_nothing_while_a_choice_is_open() -> None:
    track = Track("local", 2)
    track.note(_end(0))
    assert not track.complete
    track.note(chunks.read(event({"choices": [{"index": 1, "delta": {"content": "x"}}]}).encode()))
    with pytest.raises(UpstreamFailed):
        track.note(chunks.read(b"data: [DONE]\n\n"))


def test_the_last_of_the_asked_choices_completes_it() -> None:
    track = Track("local", 2)
    track.note(_end(1))
    track.note(_end(0))
    assert track.complete


def _choice(index: int, text: str, finish: str | None = None, tokens: int | None = None) -> str:
    usage = {"completion_tokens": 2, "prompt_tokens": tokens, "total_tokens": 2 + (tokens or 0)}
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": finish}
    more = {"usage": usage} if tokens else {}
    return event({"choices": [choice], "object": "text_completion", "model": "m", **more})


_TWO_PROMPTS = (
    "data: null\n\n", _choice(0, "a"), _choice(1, "c"), _choice(0, "b"), _choice(0, "", "length", 5),
    _choice(1, "d"), _choice(1, "", "length", 7), "data: [DONE]\n\n",
)  # fmt: skip
"""As llama-server streams them."""


async def test_several_prompts_are_several_choices_and_one_usage(house: House) -> None:
    house.remote.up = True
    house.engine.script = Script(events=_TWO_PROMPTS)
    body: dict[str, Any] = {"prompt": ["a b", "c d"], "max_tokens": 2}
    async with house.post("/v1/completions", **body) as got:
        assert got.status == 200
        assert got.headers["X-Appliance-Route"] == "local"
        reply = await got.json()
    assert [(choice["index"], choice["text"]) for choice in reply["choices"]] == [(0, "ab"), (1, "cd")]
    assert reply["usage"] == {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16}
    row = await house.row()
    assert (row.tokens_in, row.tokens_out) == (12, 4)
    async with house.post("/v1/completions", stream=True, **body) as got:
        raw = (await got.read()).decode()
    assert "data: null" not in raw, "OpenAI's SDK can't read `data: null`"
    assert raw.count('"appliance":') == 1
    assert raw.endswith("data: [DONE]\n\n")
    assert house.far.seen == []


async def test_a_usage_for_each_choice_of_one_prompt_counts_the_prompt_once(house: House) -> None:
    usage = event({"choices": [], "model": "m", "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    parts = [part for index in (0, 1) for part in (_choice(index, "x"), _choice(index, "", "stop"), usage)]
    house.local.queue.resize(2)
    house.engine.script = Script(events=(*parts, "data: [DONE]\n\n"))
    async with house.post(n=2, stream=True, stream_options={"include_usage": True}) as got:
        raw = (await got.read()).decode()
    assert raw.count('"appliance":') == 1, "the last of them says it"
    row = await house.row()
    assert (row.tokens_in, row.tokens_out) == (7, 6)
