"""A stream through the gateway: bytes as they came, the truth in the last chunk, and no faked endings."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from appliance.gateway import sse
from tests.gateway.house import LOCAL_MODEL, House, short
from tests.gateway.house import house as running
from tests.gateway.upstream import CALLS, DELTAS, Script


def _events(raw: bytes) -> list[bytes]:
    splitter = sse.Splitter(10_000_000)
    events = splitter.feed(raw)
    assert splitter.rest == b""
    return events


def _json(events: list[bytes]) -> list[Any]:
    payloads = [sse.fields(event).data for event in events]
    return [json.loads(data) for data in payloads if data and data != b"[DONE]"]


async def _stream(house: House, path: str = "/v1/chat/completions", **body: Any) -> tuple[Any, list[bytes]]:
    async with house.post(path, stream=True, **body) as got:
        assert got.status == 200
        return got.headers, _events(await got.read())


_SCRIPTS = {
    "plain": Script(),
    "three bytes per write": Script(piece=3),
    "one byte per write": Script(piece=1),
    "crlf": Script(eol="\r\n", piece=7),
    "cr": Script(eol="\r", piece=5),
    "tools": Script(deltas=CALLS, finish="tool_calls"),
    "reasoning": Script(deltas=({"reasoning_content": "hm"}, *DELTAS)),
    "logprobs": Script(logprobs=True, piece=11),
}


@pytest.mark.parametrize("script", _SCRIPTS.values(), ids=_SCRIPTS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_every_event_but_the_finish_chunk_is_forwarded_byte_for_byte(
    house: House, script: Script, path: str
) -> None:
    if path == "/v1/completions" and any("content" not in delta for delta in script.deltas):
        script = Script()
    house.engine.script = script
    _, events = await _stream(house, path, stream_options={"include_usage": True}, prompt="x")
    sent = [event for event in house.engine.seen[-1].events if sse.fields(event).data is not None]
    assert len(events) == len(sent)
    changed = [(ours, theirs) for ours, theirs in zip(events, sent, strict=True) if ours != theirs]
    assert len(changed) == 1, "only the finish chunk"
    ours, theirs = (json.loads(sse.fields(event).data or b"") for event in changed[0])
    told = ours.pop("appliance")
    assert ours == theirs
    assert ours["choices"][0]["finish_reason"]
    assert told["route"] == "local"
    assert "degraded" not in told


async def test_headers_object_and_receipt_agree(house: House) -> None:
    house.local.codes = ("cpu_fallback", "throttled")
    headers, events = await _stream(house)
    told = next(data["appliance"] for data in _json(events) if "appliance" in data)
    assert told == {
        "request_id": headers["X-Request-Id"],
        "route": headers["X-Appliance-Route"],
        "reason": headers["X-Appliance-Reason"],
        "model": headers["X-Appliance-Model"],
        "degraded": headers["X-Appliance-Degraded"].split(", "),
    }
    assert told["model"] == LOCAL_MODEL
    assert told["degraded"] == ["cpu_fallback", "throttled"]
    async with house.http.get(f"{house.url}/v1/receipts/{told['request_id']}") as got:
        receipt = await got.json()
    assert receipt["appliance"] == told
    assert (receipt["tokens_in"], receipt["tokens_out"]) == (7, 3)
    assert headers["Content-Type"].startswith("text/event-stream")
    assert headers["Cache-Control"] == "no-cache"
    assert headers["X-Accel-Buffering"] == "no"


@pytest.mark.parametrize(
    ("asked", "n_usage"), [(None, 0), ({"include_usage": False}, 0), ({"include_usage": True}, 1)]
)
async def test_the_usage_chunk_goes_only_to_clients_that_asked(
    house: House, asked: Any, n_usage: int
) -> None:
    _, events = await _stream(house, stream_options=asked)
    assert sum(data["choices"] == [] for data in _json(events)) == n_usage
    assert events[-1] == b"data: [DONE]\n\n"
    assert house.engine.seen[-1].body["stream_options"]["include_usage"] is True


async def test_of_several_choices_the_last_end_carries_the_truth(house: House) -> None:
    house.local.queue.resize(2)
    house.engine.script = Script(choices=2)
    _, events = await _stream(house, n=2)
    ends = [data for data in _json(events) if data["choices"] and data["choices"][0]["finish_reason"]]
    assert ["appliance" in data for data in ends] == [False, True]


async def test_an_engine_that_gives_fewer_choices_still_ends_with_the_truth(house: House) -> None:
    house.local.queue.resize(2)
    _, events = await _stream(house, n=2)
    data = _json(events)
    assert "appliance" in data[-1]
    assert data[-1]["choices"][0]["finish_reason"] == "stop"
    assert events[-1] == b"data: [DONE]\n\n"


@pytest.mark.parametrize("breakage", ["die", "eof", "error", "error_done", "garbage", "false_done"])
async def test_a_broken_stream_ends_in_an_error_event_and_never_looks_complete(
    house: House, breakage: Any
) -> None:
    house.remote.up = True
    house.engine.script = Script(breaks_after=2, breakage=breakage)
    _, events = await _stream(house)
    data = _json(events)
    assert b"[DONE]" not in b"".join(events)
    assert not [d for d in data if d.get("choices") and d["choices"][0]["finish_reason"]]
    error = data[-1]["error"]
    assert error["message"]
    assert error["appliance"]["route"] == "local"
    texts = [d["choices"][0]["delta"].get("content") for d in data[:-1]]
    assert texts == [None, "Hel", "lo, wörld "], "what had come before was passed on"
    assert house.far.seen == [], "never another side after the first delta"
    assert (await house.row()).status == 502


@pytest.mark.parametrize("breakage", ["die", "eof"])
@pytest.mark.parametrize(("route", "words"), [
    ("local", "the engine ended or was stopped in the middle of the reply; it is started again by itself, "
              "so try again"),
    ("remote", "the connection to vllm broke in the middle of the reply"),
])  # fmt: skip
async def test_a_connection_that_broke_is_told_in_words(
    house: House, breakage: Any, route: str, words: str
) -> None:
    house.remote.up = True
    house.engine.script = house.far.script = Script(breaks_after=2, breakage=breakage)
    async with house.post(stream=True, headers={"X-Appliance-Route": route}) as got:
        raw = await got.read()
    assert json.loads(raw.strip().rsplit(b"data: ", 1)[1])["error"]["message"] == words


async def test_a_reset_after_the_finish_chunk_is_no_failure(house: House) -> None:
    house.engine.script = Script(done=False)
    _, events = await _stream(house)
    assert _json(events)[-1]["choices"][0]["finish_reason"] == "stop"
    assert (await house.row()).status == 200


async def test_headers_wait_for_the_first_delta_then_name_the_side(house: House) -> None:
    first = house.engine.script.first = asyncio.Event()
    asked = asyncio.create_task(_stream(house))
    await house.engine.arrived.get()
    assert not asked.done()
    first.set()
    headers, events = await asked
    assert headers["X-Appliance-Route"] == "local"
    assert b": ping" not in b"".join(events)


async def test_after_the_hold_limit_pending_headers_go_out_and_pings_keep_the_client() -> None:
    async with running(short(hold_s=0.05, ping_s=0.05)) as house:
        first = house.engine.script.first = asyncio.Event()
        async with house.post(stream=True) as got:
            for name in ("Route", "Reason", "Model", "Degraded"):
                assert got.headers[f"X-Appliance-{name}"] == "pending"
            for _ in range(3):
                assert await got.content.readuntil(b"\n\n") == b": ping\n\n"
            first.set()
            raw = await got.read()
        told = [d["appliance"] for d in _json(_events(raw)) if "appliance" in d]
        assert [t["route"] for t in told] == ["local"]


async def test_pings_go_on_between_tokens_and_only_at_event_boundaries() -> None:
    async with running(short(ping_s=0.03)) as house:
        house.engine.script = Script(breaks_after=2, breakage="hang", piece=4)
        async with house.post(stream=True) as got:
            seen = [await got.content.readuntil(b"\n\n") for _ in range(6)]
        assert seen[:3] == [bytes(event) for event in house.engine.seen[0].events]
        assert seen[3:] == [b": ping\n\n"] * 3


async def test_the_engine_gets_its_own_key_and_nothing_of_the_clients_headers(house: House) -> None:
    sent = {
        "Authorization": "Bearer secret-of-the-client", "Cookie": "a=b", "X-Conversation-Id": "1",
        "X-Vllm-Priority": "1", "X-Request-Id": "mine",
    }  # fmt: skip
    async with house.post(headers=sent, stream=True) as got:
        request_id = got.headers["X-Request-Id"]
        await got.read()
    seen = house.engine.seen[0]
    assert seen.headers["Authorization"] == "Bearer engine-key"
    assert seen.headers["Connection"] == "close"
    assert seen.headers["Accept-Encoding"] == "identity"
    assert seen.headers["X-Request-Id"] == request_id != "mine"
    for name in ("Cookie", "X-Conversation-Id", "X-Vllm-Priority", "Origin"):
        assert name not in seen.headers
    assert seen.body["model"] == LOCAL_MODEL
    async with house.http.get(f"{house.url}/v1/receipts/{request_id}") as got:
        assert (await got.json())["client_request_id"] == "mine"


async def test_a_slow_client_slows_the_upstream_instead_of_filling_memory(house: House) -> None:
    house.engine.script = Script(flood=2_000)
    async with house.post(stream=True) as got:
        await got.content.readuntil(b"\n\n")
        seen = house.engine.seen[0]
        before = -1
        while len(seen.sent) != before:  # until the upstream can't write any more
            before = len(seen.sent)
            await asyncio.sleep(0.2)
        assert before < 60_000_000, "the kernel's and our buffers only, not the 120 MB of the reply"
    async with asyncio.timeout(2):
        await seen.gone.wait()


async def test_a_client_that_takes_nothing_for_too_long_loses_its_slot() -> None:
    async with running(short(write_s=0.2)) as house:
        house.engine.script = Script(flood=2_000)
        async with house.post(stream=True) as got:
            await got.content.readuntil(b"\n\n")
            async with asyncio.timeout(10):
                await house.engine.seen[0].gone.wait()
            assert (await house.row()).status == 499
            assert house.local.queue.snapshot.running == 0
            with pytest.raises(aiohttp.ClientError):
                await got.read()
