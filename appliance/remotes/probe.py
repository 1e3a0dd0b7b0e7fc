"""One look at a remote: is it there, does it take our key, what does it serve, how long is its queue."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from appliance.remotes import address, metrics
from appliance.remotes.failures import normalise_error
from appliance.remotes.retry import retry_after_s
from appliance.remotes.types import ServedModel
from appliance.text import clean_line, decode

TIMEOUT_S = 5.0
_BODY_LIMIT = 1 << 20
_METRICS_LIMIT = 8 << 20
_MAX_MODELS = 1_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look found. `error` is None when the remote is up."""

    error: str | None = None
    models: tuple[ServedModel, ...] | None = None
    """None: it gives no list (other suppliers may not)."""
    latency_ms: float | None = None
    waiting: int | None = None
    running: int | None = None
    version: str | None = None
    retry_after_s: float | None = None


async def look(
    session: aiohttp.ClientSession,
    url: str,
    kind: str,
    headers: Mapping[str, str],
    *,
    timeout_s: float = TIMEOUT_S,
) -> Seen:
    """Ask once. Never raises for anything that the remote or the network does."""
    try:
        async with asyncio.timeout(timeout_s):
            seen = await _models(session, url, kind, headers)
            if seen.error is not None or kind != "vllm":
                return seen
            return await _with_vllm(session, url, seen)
    except TimeoutError:
        return Seen(f"no answer within {timeout_s:g} s")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return Seen(describe(error))


async def _models(session: aiohttp.ClientSession, url: str, kind: str, headers: Mapping[str, str]) -> Seen:
    started = time.perf_counter()
    # Redirects are not followed: they could carry the key to another host.
    async with session.get(f"{address.base(url)}/models", headers=headers, allow_redirects=False) as answer:
        body = await _read(answer, _BODY_LIMIT)
        latency_ms = (time.perf_counter() - started) * 1000
        if answer.status == 200:
            models = _parse_models(body)
            if models is None:
                return Seen(
                    "its answer to GET /models is not a list of models; is this an OpenAI-style address?"
                )
            return Seen(models=models, latency_ms=latency_ms)
        if kind == "openai" and answer.status in (404, 405, 501):
            return Seen(latency_ms=latency_ms)
        return Seen(_refusal(answer, body), retry_after_s=retry_after_s(answer.headers.get("Retry-After")))


def _refusal(answer: aiohttp.ClientResponse, body: bytes) -> str:
    status, message = answer.status, normalise_error(answer.status, body).message
    if status in (401, 403):
        return f"it refuses the key (HTTP {status}: {message})"
    if 300 <= status < 400:
        return (
            f"it redirects to {clean_line(answer.headers.get('Location', '?'), 200)}; configure that address"
        )
    if status == 404:
        return "it has no /models (HTTP 404); the address usually ends in /v1"
    return f"HTTP {status}: {message}"


def _parse_models(body: bytes) -> tuple[ServedModel, ...] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    rows = document.get("data") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        return None
    return tuple(
        ServedModel(row["id"], _length(row.get("max_model_len")))
        for row in rows[:_MAX_MODELS]
        if isinstance(row, dict) and isinstance(row.get("id"), str)
    )


def _length(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


async def _with_vllm(session: aiohttp.ClientSession, url: str, seen: Seen) -> Seen:
    """Queue and version, from the server's root. Both may be closed off or absent. Neither gets the key."""
    root = address.root(url)
    text, version = await asyncio.gather(
        _optional(session, f"{root}/metrics", _METRICS_LIMIT),
        _optional(session, f"{root}/version", _BODY_LIMIT),
    )
    return Seen(
        models=seen.models,
        latency_ms=seen.latency_ms,
        waiting=metrics.gauge(text, metrics.WAITING),
        running=metrics.gauge(text, metrics.RUNNING),
        version=_version(version),
    )


async def _optional(session: aiohttp.ClientSession, url: str, limit: int) -> str:
    """The text of a page that may not be there."""
    try:
        async with asyncio.timeout(TIMEOUT_S / 2), session.get(url, allow_redirects=False) as answer:
            return decode(await _read(answer, limit)) if answer.status == 200 else ""
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return ""


def _version(text: str) -> str | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    version = document.get("version") if isinstance(document, dict) else None
    return clean_line(version, 80) if isinstance(version, str) else None


async def _read(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    """At most `limit` bytes. Raises ValueError for more."""
    parts = bytearray()
    async for part in answer.content.iter_any():
        parts += part
        if len(parts) > limit:
            raise ValueError(f"an answer of more than {limit} bytes")
    return bytes(parts)


def describe(error: Exception) -> str:
    """A network error for people, without its address and headers."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name can't be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate isn't trusted ({clean_line(str(error.certificate_error), 200)})"
    if isinstance(error, (aiohttp.ClientConnectorSSLError, ssl.SSLError)):
        return "TLS fails; is it plain http?"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        return "connection refused" if isinstance(cause, ConnectionRefusedError) else _os_text(cause)
    if isinstance(error, (aiohttp.ServerDisconnectedError, ConnectionResetError, aiohttp.ClientPayloadError)):
        return "it closed the connection"
    if isinstance(error, OSError) and not isinstance(error, aiohttp.ClientError):
        return _os_text(error)
    return f"no usable answer ({type(error).__name__})"


def _os_text(error: OSError) -> str:
    return clean_line(error.strerror or type(error).__name__, 200).lower()
