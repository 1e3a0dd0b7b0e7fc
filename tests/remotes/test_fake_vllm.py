"""The fake itself: a fake that differs from the real wire proves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.fake_vllm import DEFAULT_MODEL, FakeVllm

CHAT: dict[str, Any] = {"model": DEFAULT_MODEL, "messages": [{"role": "user", "content": "one two three"}]}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def events(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> list[str]:
    """The data of each event, until the stream ends."""
    async with http.post(f"{url}/chat/completions", json=body) as answer:
        assert answer.status == 200
        text = await answer.text()
    return [part.removeprefix("data: ") for part in text.split("\n\n") if part]


async def test_the_real_client_streams_from_it() -> None:
    async with FakeVllm(key="k", words=("a", "b"), reasoning=("hm",)) as fake:
        client = openai.AsyncOpenAI(base_url=fake.url, api_key="k", max_retries=0)
        seen = [
            (c.choices[0].delta.content, c.choices[0].finish_reason)
            async for c in await client.chat.completions.create(**CHAT, stream=True)
        ]
        await client.close()
    assert seen == [("", None), (None, None), ("a", None), ("b", None), ("", "stop")]


async def test_a_stream_on_the_wire(http: aiohttp.ClientSession) -> None:
    async with FakeVllm(words=("a",)) as fake:
        seen = await events(http, fake.url, CHAT | {"stream": True})
        with_usage = await events(
            http, fake.url, CHAT | {"stream": True, "stream_options": {"include_usage": True}}
        )
    first = json.loads(seen[0])
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert seen[-1] == "[DONE]"
    assert len(seen) == 4
    assert json.loads(with_usage[-2])["choices"] == []
    assert json.loads(with_usage[-2])["usage"]["prompt_tokens"] == 3


async def test_a_plain_reply_and_a_limit(http: aiohttp.ClientSession) -> None:
    async with FakeVllm(words=("a", "b", "c")) as fake:
        async with http.post(f"{fake.url}/chat/completions", json=CHAT | {"max_tokens": 2}) as answer:
            reply = await answer.json()
        async with http.post(f"{fake.url}/completions", json={"prompt": "x"}) as answer:
            text = await answer.json()
    assert reply["choices"][0]["message"]["content"] == "ab"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 2
    assert text["choices"][0]["text"] == "abc"


async def test_the_key_guards_v1_only_and_its_401_has_a_string(http: aiohttp.ClientSession) -> None:
    async with FakeVllm(key="k") as fake:
        async with http.get(f"{fake.url}/models") as answer:
            assert (answer.status, await answer.json()) == (401, {"error": "Unauthorized"})
        root = fake.url.removesuffix("/v1")
        for page in ("/health", "/metrics", "/version"):
            async with http.get(root + page) as answer:
                assert answer.status == 200


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"messages": [{"role": "user", "content": "x " * 50}]}, 400, "input_tokens"),
        ({"max_tokens": 48}, 400, "input_tokens"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"tools": []}, 400, "tools"),
        ({"tool_choice": "auto"}, 400, "tool_choice"),
        ({"stop": list("abcde")}, 400, "stop"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
        ({"temperature": 2.5}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"top_logprobs": 3}, 400, "top_logprobs"),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format"),
    ],
)
async def test_what_it_refuses(
    http: aiohttp.ClientSession, change: dict[str, Any], status: int, param: str
) -> None:
    async with (
        FakeVllm(max_model_len=50) as fake,
        http.post(f"{fake.url}/chat/completions", json=CHAT | change) as answer,
    ):
        error = (await answer.json())["error"]
        assert (answer.status, error["code"], error["param"]) == (status, status, param)


async def test_unknown_fields_are_ignored(http: aiohttp.ClientSession) -> None:
    async with (
        FakeVllm() as fake,
        http.post(f"{fake.url}/chat/completions", json=CHAT | {"grammar": "root ::= x"}) as answer,
    ):
        assert answer.status == 200


async def test_headers_leave_before_the_first_token(http: aiohttp.ClientSession) -> None:
    async with FakeVllm() as fake:
        fake.faults.first_token = asyncio.Event()
        async with http.post(f"{fake.url}/chat/completions", json=CHAT | {"stream": True}) as answer:
            assert answer.status == 200
            assert fake.running == 1
            fake.faults.first_token.set()
            assert b'"role": "assistant"' in await answer.content.readuntil(b"\n\n")


async def test_a_mid_stream_error_is_followed_by_done(http: aiohttp.ClientSession) -> None:
    async with FakeVllm() as fake:
        fake.faults.error_after = 1
        seen = await events(http, fake.url, CHAT | {"stream": True})
    assert json.loads(seen[-2])["error"]["code"] == 500
    assert seen[-1] == "[DONE]"


async def test_a_stream_can_end_without_an_end(http: aiohttp.ClientSession) -> None:
    async with FakeVllm() as fake:
        fake.faults.end_after = 2
        seen = await events(http, fake.url, CHAT | {"stream": True})
    assert len(seen) == 3
    assert all('"finish_reason": null' in one for one in seen)


@pytest.mark.parametrize("before", [True, False])
async def test_resets(http: aiohttp.ClientSession, before: bool) -> None:
    async with FakeVllm() as fake:
        fake.faults.reset_before_headers = before
        fake.faults.reset_after = None if before else 1
        with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
            await events(http, fake.url, CHAT | {"stream": True})
        await fake.until(aborted=1)


async def test_a_client_that_goes_away_is_counted(http: aiohttp.ClientSession) -> None:
    async with FakeVllm() as fake:
        fake.faults.stall_after = 1
        answer = await http.post(f"{fake.url}/chat/completions", json=CHAT | {"stream": True})
        await answer.content.readuntil(b"\n\n")
        answer.close()
        await fake.until(aborted=1)
        assert (fake.running, fake.waiting, fake.finished) == (0, 0, 0)


async def test_one_slot_makes_the_second_wait(http: aiohttp.ClientSession) -> None:
    async with FakeVllm(slots=1) as fake:
        fake.faults.first_token = asyncio.Event()
        asked = [asyncio.create_task(events(http, fake.url, CHAT | {"stream": True})) for _ in range(2)]
        await fake.until(generations=2)
        async with http.get(fake.url.removesuffix("/v1") + "/metrics") as answer:
            text = await answer.text()
        fake.faults.first_token.set()
        await asyncio.gather(*asked)
    assert 'num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 1.0' in text
    assert 'num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 1.0' in text


async def test_it_refuses_and_listens_again_on_the_same_port(http: aiohttp.ClientSession) -> None:
    async with FakeVllm() as fake:
        await fake.refuse()
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(f"{fake.url}/models")
        await fake.listen()
        async with http.get(f"{fake.url}/models") as answer:
            assert answer.status == 200


async def test_it_keeps_what_arrived(http: aiohttp.ClientSession) -> None:
    async with FakeVllm() as fake:
        await events(http, fake.url, CHAT | {"stream": True})
        async with http.get(f"{fake.url}/models", headers={"Authorization": "Bearer x"}):
            pass
        (sent,) = fake.generations
        assert sent.body == CHAT | {"stream": True}
        assert fake.asked("/v1/models")[0].headers["Authorization"] == "Bearer x"


async def test_it_runs_as_a_process_of_its_own(http: aiohttp.ClientSession) -> None:
    root = Path(__file__).parents[2]
    env = {**os.environ, "FAKE_VLLM_KEY": "k"}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fake_vllm", cwd=root, env=env, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        url = json.loads(await child.stdout.readline())["url"]
        page = url.removesuffix("/v1") + "/_fake"
        headers = {"Authorization": "Bearer k"}
        async with http.post(f"{page}/faults", json={"status": 503}):
            pass
        async with http.post(f"{url}/chat/completions", json=CHAT, headers=headers) as answer:
            assert answer.status == 503
        async with http.get(f"{page}/requests") as answer:
            (row,) = (await answer.json())["requests"]
        assert row["body"] == CHAT
    finally:
        child.terminate()
        await child.wait()
