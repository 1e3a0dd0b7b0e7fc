"""The gateway over the real default engine and model: what is assembled equals what the engine answers
itself, and a slot is free within a second after its client has gone."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engines import Endpoint, Engine, session
from tests.engines.launches import build, launch, paths_in
from tests.gateway.house import House, until
from tests.gateway.house import house as running

_SAID: dict[str, Any] = {"temperature": 0, "seed": 1, "max_tokens": 8, "cache_prompt": False}
_CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Name three colours. Écris-les."}], **_SAID}
_ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
_ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", _CHAT),
    "chat with logprobs": ("/v1/chat/completions", {**_CHAT, "logprobs": True, "top_logprobs": 2}),
    "a tool that must be called": (
        "/v1/chat/completions",
        {**_CHAT, "max_tokens": 40, "tools": [_ADD], "tool_choice": "required"},
    ),
    "json schema": (
        "/v1/chat/completions",
        {**_CHAT, "max_tokens": 40, "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": _ADD["function"]["parameters"]}}},
    ),
    "completion with logprobs": ("/v1/completions", {"prompt": "The sky is", **_SAID, "logprobs": 2}),
    "two choices": ("/v1/chat/completions", {**_CHAT, "n": 2}),
    "two prompts": ("/v1/completions", {"prompt": ["The sky is", "Two and two are"], **_SAID}),
}  # fmt: skip


@pytest.fixture
async def real(smollm2_path: Path) -> AsyncIterator[tuple[House, Endpoint]]:
    """A gateway whose engine is xllamacpp with SmolLM2."""
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    engine = Engine(build("xllamacpp"), launch(smollm2_path), paths=paths_in(folder))
    await engine.start()
    try:
        endpoint = await engine.wait_ready()
        async with running(slots=2) as house:
            house.local.own = endpoint
            yield house, endpoint
    finally:
        await engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _shape(reply: Any) -> Any:
    """Without what differs between any two replies: ids, times, measured figures."""
    if isinstance(reply, dict):
        return {
            name: sorted(value) if name == "timings" else _shape(value)
            for name, value in reply.items()
            if name not in ("id", "created")
        }
    return [_shape(item) for item in reply] if isinstance(reply, list) else reply


async def test_assembled_replies_equal_the_engines_own_field_by_field(real: tuple[House, Endpoint]) -> None:
    house, endpoint = real
    async with session(endpoint) as direct:
        for name, (path, body) in _ASKED.items():
            async with house.post(path, **body) as got:
                assert got.status == 200, (name, await got.text())
                ours = await got.json()
            async with direct.post(path, json={**body, "model": ours["model"]}) as own:
                theirs = await own.json()
            appliance = ours.pop("appliance")
            assert (appliance["route"], appliance["reason"]) == ("local", "local.ok")
            assert appliance["model"] == theirs["model"]
            if name.startswith("two "):
                assert theirs.pop("usage")["completion_tokens"] == 8, "the engine counts the first only"
                assert ours.pop("usage")["completion_tokens"] == 16
            assert _shape(ours) == _shape(theirs), name
    row = await house.row()
    assert (row.tokens_in or 0) > 0
    assert row.tokens_out == 8
    assert (row.tokens_per_second or 0) > 0


async def test_a_stream_speaks_and_a_client_that_leaves_frees_the_slot(real: tuple[House, Endpoint]) -> None:
    house, endpoint = real
    async with house.post(stream=True, **_CHAT) as got:
        assert got.headers["X-Appliance-Route"] == "local"
        raw = await got.read()
    assert raw.endswith(b"data: [DONE]\n\n")
    assert raw.count(b'"appliance":') == 1
    endless = {**_CHAT, "max_tokens": 400, "ignore_eos": True}
    for stream in (True, False):
        asked = asyncio.create_task(_read(house, stream=stream, **endless))
        await until(lambda: house.local.queue.snapshot.running == 1)
        async with asyncio.timeout(20):
            while not await _busy(endpoint):  # noqa: ASYNC110 - another program's state
                await asyncio.sleep(0.2)
        asked.cancel()
        # Looking at the engine disturbs it, so once after the promised second; and once more for a machine
        # on which other programs slow each of the engine's batches down.
        await asyncio.sleep(1.0)
        if await _busy(endpoint):
            await asyncio.sleep(2.0)
            assert not await _busy(endpoint), f"stream={stream}"
        assert house.local.queue.snapshot.running == 0


async def test_what_the_engine_cannot_do_stays_here_and_is_the_requests_fault(
    real: tuple[House, Endpoint],
) -> None:
    """What the gateway's own checks let through and the engine refuses, with a 400 or a 500 of its own."""
    house, _ = real
    house.remote.up = True
    for body in ({"grammar": "root ::= ("}, {"chat_template_kwargs": {"enable_thinking": "x"}},
                 {"response_format": {"type": "json_schema", "json_schema": {
                     "name": "x", "schema": {"type": "nonsense"}}}}):  # fmt: skip
        async with house.post(**{**_CHAT, **body}) as got:
            assert got.status == 400, await got.text()
            assert got.headers["X-Appliance-Reason"] == "reject.unsupported"
    assert house.far.seen == []
    async with house.post(**_CHAT) as got:
        assert got.status == 200


async def _read(house: House, **body: Any) -> None:
    async with house.post(**body) as got:
        await got.read()


async def _busy(endpoint: Endpoint) -> bool:
    async with session(endpoint) as direct, direct.get("/slots") as got:
        return any(slot["is_processing"] for slot in json.loads(await got.text()))
