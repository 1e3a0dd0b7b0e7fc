"""The official client, sync and async, streaming and plain, through the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest

from tests.gateway.house import LOCAL_MODEL, House
from tests.gateway.upstream import CALLS, FULL_CALLS, Script

_TEXT = "Hello, wörld 日本語 😀"
_SAYS: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def client(house: House) -> AsyncIterator[openai.AsyncOpenAI]:
    made = openai.AsyncOpenAI(base_url=f"{house.url}/v1", api_key="not-needed", max_retries=0)
    yield made
    await made.close()


async def test_async_plain(client: openai.AsyncOpenAI) -> None:
    got = await client.chat.completions.create(model="tiny", messages=_SAYS)
    assert got.choices[0].message.content == _TEXT
    assert got.choices[0].finish_reason == "stop"
    assert got.usage is not None
    assert got.usage.completion_tokens == 3
    assert got.model == LOCAL_MODEL
    assert (got.model_extra or {})["appliance"]["route"] == "local"


async def test_async_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="tiny", messages=_SAYS, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == _TEXT
    assert chunks[-1].usage is not None
    assert [c for c in chunks if "appliance" in (c.model_extra or {})]


async def test_sync_stream_and_plain(house: House) -> None:
    def both() -> tuple[str, str | None]:
        with openai.OpenAI(base_url=f"{house.url}/v1", api_key="x", max_retries=0) as client:
            stream = client.chat.completions.create(model="tiny", messages=_SAYS, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            plain = client.chat.completions.create(model="tiny", messages=_SAYS)
            return text, plain.choices[0].message.content

    assert await asyncio.to_thread(both) == (_TEXT, _TEXT)


async def test_tool_calls(house: House, client: openai.AsyncOpenAI) -> None:
    house.engine.script = Script(deltas=CALLS, finish="tool_calls")
    got = await client.chat.completions.create(model="tiny", messages=_SAYS)
    calls = got.choices[0].message.tool_calls
    assert calls is not None
    assert [call.model_dump() for call in calls] == FULL_CALLS


async def test_completions_and_embeddings(client: openai.AsyncOpenAI) -> None:
    text = await client.completions.create(model="tiny", prompt="x")
    assert text.choices[0].text == _TEXT
    vectors = await client.embeddings.create(model="embedder", input="x", encoding_format="float")
    assert vectors.data[0].embedding == [0.25, -0.5]


async def test_a_broken_stream_raises_in_the_client(house: House, client: openai.AsyncOpenAI) -> None:
    house.engine.script = Script(breaks_after=2)
    stream = await client.chat.completions.create(model="tiny", messages=_SAYS, stream=True)
    with pytest.raises(openai.APIError) as broken:
        async for _ in stream:
            pass
    assert isinstance(broken.value.body, dict)
    assert broken.value.body["appliance"]["route"] == "local"


async def test_errors_are_the_clients_own_classes(house: House, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.chat.completions.create(model="nope", messages=_SAYS)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model="tiny", messages=[])
    house.local.state = "failed"
    with pytest.raises(openai.InternalServerError) as down:
        await client.chat.completions.create(model="tiny", messages=_SAYS)
    assert down.value.status_code == 503
    assert 1 <= int(down.value.response.headers["retry-after"]) <= 120


async def test_leaving_a_stream_early_closes_the_upstream(house: House, client: openai.AsyncOpenAI) -> None:
    house.engine.script = Script(breaks_after=2, breakage="hang")
    stream = await client.chat.completions.create(model="tiny", messages=_SAYS, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    async with asyncio.timeout(1):
        await house.engine.seen[0].gone.wait()
