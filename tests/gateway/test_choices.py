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
