"""HTTP to an engine: over its Unix socket or loopback, with its key, one connection per request.

llama-server closes a connection after a stream although it announced keep-alive, so none is reused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

from appliance.engines.values import Endpoint, EngineKind, Launch

Health = Literal["absent", "loading", "ok"]
HEALTH_S = 5.0
_PROBE_BYTES = 64 << 10
_METRIC = re.compile(r"^llamacpp:(\w+) ([0-9][0-9.eE+]*)$", re.MULTILINE)
_MOVING = ("n_decode_total", "prompt_tokens_total", "tokens_predicted_total")
"""They grow while it works, the first with each batch."""
_INSIDE = ("requests_processing", "requests_deferred")


@dataclass(frozen=True, slots=True)
class Props:
    """What the engine says it serves; None where this kind does not say it."""

    ctx: int | None
    """Tokens per slot."""
    slots: int | None


@dataclass(frozen=True, slots=True)
class Counters:
    """What an engine counts; only that it moves matters."""

    values: tuple[float, ...]
    inside: int
    """Requests that it works on, or that wait in it."""


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


async def probe(
    client: aiohttp.ClientSession,
    kind: EngineKind,
    launch: Launch,
    timeout_s: float,
    slot: int | None = None,
) -> None:
    """Make it work once: a token, an embedding, a score. Raises ValueError with what it answered instead.

    `slot`: the one to use, where this kind has slots that can be chosen.
    """
    path, body = _probe_request(kind, launch)
    if slot is not None and path == "/completion":
        body["id_slot"] = slot
    async with client.post(path, json=body, timeout=aiohttp.ClientTimeout(total=timeout_s)) as answer:
        text = (await answer.content.read(_PROBE_BYTES)).decode("utf-8", errors="replace")
        if answer.status != 200:
            raise ValueError(f"{path} answered {answer.status}: {text[:300]}")
        if not text.lstrip().startswith("{") or '"error"' in text[:20]:
            raise ValueError(f"{path} answered something else than a result")


async def counters(client: aiohttp.ClientSession, timeout_s: float) -> Counters | None:
    """What llama.cpp counts; None when it does not tell within `timeout_s`, as in the middle of a batch.

    One reader only: each reading begins the engine's averages anew.
    """
    try:
        async with client.get("/metrics", timeout=aiohttp.ClientTimeout(total=timeout_s)) as answer:
            text = await answer.text(errors="replace") if answer.status == 200 else ""
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    found = {match[1]: float(match[2]) for match in _METRIC.finditer(text)}
    if not any(name in found for name in _MOVING):
        return None
    inside = sum(int(found.get(name, 0)) for name in _INSIDE)
    return Counters(tuple(found.get(name, 0.0) for name in _MOVING), inside)


async def cheapest_slot(client: aiohttp.ClientSession, timeout_s: float) -> int | None:
    """The idle slot that keeps the shortest prompt, so that a probe throws the least away; None: unknown."""
    try:
        async with client.get("/slots", timeout=aiohttp.ClientTimeout(total=timeout_s)) as answer:
            rows = await answer.json(content_type=None) if answer.status == 200 else []
        idle = {
            int(row["id"]): int(row.get("n_prompt_tokens") or 0) for row in rows if not row["is_processing"]
        }
        return min(idle, key=lambda slot: idle[slot], default=None)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _probe_request(kind: EngineKind, launch: Launch) -> tuple[str, dict[str, Any]]:
    if launch.reranking:
        return "/v1/rerank", {"model": launch.model_id, "query": "Hi", "documents": ["Hi"]}
    if launch.embedding:
        return "/v1/embeddings", {"model": launch.model_id, "input": "Hi"}
    if kind == "llama-cpp-python":
        return "/v1/completions", {"model": launch.model_id, "prompt": "Hi", "max_tokens": 1}
    return "/completion", {"prompt": "Hi", "n_predict": 1, "cache_prompt": False}
