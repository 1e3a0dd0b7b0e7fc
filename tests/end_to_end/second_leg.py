"""A running appliance with one remote, a server that follows vLLM's wire and counts what reached it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.end_to_end.appliance import MODEL, Home, Running
from tests.fake_vllm import FakeVllm

REMOTE_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
KEY = "remote-secret-41"
SMALL = ("--ctx", "1024", "--parallel", "1")


@asynccontextmanager
async def appliance(
    home: Home, remote: FakeVllm, *arguments: str, env: dict[str, str] | None = None
) -> AsyncIterator[Running]:
    """A running appliance whose only remote is the fake one, seen as up."""
    added = await asyncio.to_thread(
        home.run, "remote", "add", "lab", remote.url, "--api-key-env", "LAB_KEY",
        "--model", f"{MODEL}={REMOTE_MODEL}",
    )  # fmt: skip
    assert added.code == 0, added.err
    manager = home.up(MODEL, *arguments, env={"LAB_KEY": KEY, **(env or {})})
    running = await asyncio.to_thread(manager.__enter__)
    try:
        await wait(running, lambda status: status["remotes"][0]["state"] == "up")
        yield running
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


async def wait(running: Running, look: Any, limit_s: float = 30) -> dict[str, Any]:
    """The first status for which `look` holds."""
    async with asyncio.timeout(limit_s):
        while True:
            _, status = await asyncio.to_thread(running.raw, "GET", "/api/status")
            if look(status):
                return status
            await asyncio.sleep(0.1)


async def ask(
    running: Running, route: str | None = None, **more: Any
) -> tuple[int, dict[str, str], dict[str, Any]]:
    """One plain chat request: status, headers, body."""
    headers = {"X-Appliance-Route": route} if route else {}
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, **more}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{running.url}/chat/completions", json=body, headers=headers) as response,
    ):
        return response.status, dict(response.headers), await response.json()


def remote_server() -> FakeVllm:
    return FakeVllm(models=(REMOTE_MODEL,), key=KEY)
