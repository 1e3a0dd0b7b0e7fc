"""HTTP to an engine: over its Unix socket or loopback, with its key, one connection per request.

llama-server closes a connection after a stream although it announced keep-alive, so none is reused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

from appliance.engines.values import Endpoint, EngineKind, Launch

Health = Literal["absent", "loading", "ok"]
HEALTH_S = 5.0


@dataclass(frozen=True, slots=True)
class Props:
    """What the engine says it serves; None where this kind does not say it."""

    ctx: int | None
    """Tokens per slot."""
    slots: int | None


def session(endpoint: Endpoint) -> aiohttp.ClientSession:
    """A client for one engine; the caller closes it. Every request carries the key."""
    connector: aiohttp.BaseConnector
    if endpoint.socket is not None:
        connector = aiohttp.UnixConnector(endpoint.socket, force_close=True, limit=0)
    else:
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
    return aiohttp.ClientSession(
        endpoint.base_url,
        connector=connector,
        headers={"Authorization": f"Bearer {endpoint.key}"},
        trust_env=False,
    )


async def health(client: aiohttp.ClientSession, kind: EngineKind) -> Health:
    """`loading` while it answers 503, `absent` while nothing listens (llama-cpp-python: until loaded)."""
    path = "/v1/models" if kind == "llama-cpp-python" else "/health"
    try:
        async with client.get(path, timeout=aiohttp.ClientTimeout(total=HEALTH_S)) as answer:
            return "ok" if answer.status == 200 else "loading"
    except (aiohttp.ClientError, TimeoutError, OSError):
        return "absent"


async def props(client: aiohttp.ClientSession, kind: EngineKind) -> Props:
    """Context and slots as the engine has them. Raises ValueError for an answer without them."""
    if kind == "llama-cpp-python":
        return Props(None, 1)
    async with client.get("/props", timeout=aiohttp.ClientTimeout(total=30)) as answer:
        if answer.status != 200:
            raise ValueError(f"/props answered {answer.status}")
        document = await answer.json(content_type=None)
    try:
        return Props(int(document["default_generation_settings"]["n_ctx"]), int(document["total_slots"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"/props has no {error}") from None


async def probe(client: aiohttp.ClientSession, kind: EngineKind, launch: Launch, timeout_s: float) -> None:
    """Make it work once: a token, an embedding or a score. Raises ValueError with what it answered instead."""
    path, body = _probe_request(kind, launch)
    async with client.post(path, json=body, timeout=aiohttp.ClientTimeout(total=timeout_s)) as answer:
        if answer.status == 200:
            await answer.read()
            return
        raise ValueError(f"{path} answered {answer.status}: {(await answer.text())[:300]}")


def _probe_request(kind: EngineKind, launch: Launch) -> tuple[str, dict[str, Any]]:
    if launch.reranking:
        return "/v1/rerank", {"model": launch.model_id, "query": "Hi", "documents": ["Hi"]}
    if launch.embedding:
        return "/v1/embeddings", {"model": launch.model_id, "input": "Hi"}
    if kind == "llama-cpp-python":
        return "/v1/completions", {"model": launch.model_id, "prompt": "Hi", "max_tokens": 1}
    return "/completion", {"prompt": "Hi", "n_predict": 1, "cache_prompt": False}
