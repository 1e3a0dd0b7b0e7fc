"""One event of an upstream stream, understood as far as the gateway needs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from appliance.gateway import sse
from appliance.remotes import rename_reasoning

ChunkKind = Literal["quiet", "json", "done", "error", "garbage"]
"""`quiet`: a comment or an empty event, like the engine's pings."""

_SAID = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "audio")


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one event holds, and its bytes as they came."""

    raw: bytes
    kind: ChunkKind
    payload: bytes = b""
    """The data of the event."""
    data: Mapping[str, Any] | None = None
    """The JSON object, for `json` and `error`."""
    speaks: bool = False
    """It carries content, reasoning, a refusal or a tool call: from here on, no other side may answer."""
    indices: frozenset[int] = frozenset()
    """Choices in it."""
    finished: frozenset[int] = frozenset()
    """Choices that end in it."""

    @property
    def only_usage(self) -> bool:
        """The chunk with usage and without choices."""
        return self.data is not None and self.data.get("choices") == [] and bool(self.data.get("usage"))


def read(raw: bytes) -> Chunk:
    """Understand one event; never raises."""
    payload = sse.fields(raw).data
    if payload is None or not payload.strip():
        return Chunk(raw, "quiet")
    if payload.strip() == b"[DONE]":
        return Chunk(raw, "done", payload)
    try:
        data = json.loads(payload)
    except (ValueError, RecursionError):
        return Chunk(raw, "garbage", payload)
    if data is None:
        return Chunk(b"", "quiet")  # llama-server's before each further prompt; clients can't read it
    if not isinstance(data, dict):
        return Chunk(raw, "garbage", payload)
    if data.get("error"):
        return Chunk(raw, "error", payload, data)
    choices = data.get("choices")
    if not isinstance(choices, list):
        return Chunk(raw, "json", payload, data)
    if not all(isinstance(choice, dict) for choice in choices):
        return Chunk(raw, "garbage", payload)
    return Chunk(
        raw,
        "json",
        payload,
        data,
        speaks=any(_speaks(choice) for choice in choices),
        indices=frozenset(_index(choice) for choice in choices),
        finished=frozenset(_index(choice) for choice in choices if choice.get("finish_reason") is not None),
    )


def with_appliance(chunk: Chunk, appliance: Mapping[str, Any]) -> bytes:
    """The event with the `appliance` object added; every other byte of its JSON stays as it came."""
    body = chunk.payload.rstrip()
    data = chunk.data or {}
    if b"\n" in body or not body.startswith(b"{") or not data or "appliance" in data:
        return b"data: " + dumps({**data, "appliance": appliance}) + b"\n\n"
    told = dumps(appliance)
    return b"data: " + body[:-1].rstrip() + b',"appliance":' + told + b"}\n\n"


def with_reasoning_content(chunk: Chunk) -> Chunk:
    """A remote's event with `reasoning_content` beside vLLM's `reasoning`, as the local engine and most
    clients call it; any other event is the same object, byte for byte."""
    if chunk.kind != "json" or b'"reasoning"' not in chunk.payload:
        return chunk
    data = rename_reasoning(dict(chunk.data or {}))
    if data == chunk.data:
        return chunk
    payload = dumps(data)
    return replace(chunk, raw=b"data: " + payload + b"\n\n", payload=payload, data=data)


def dumps(value: Mapping[str, Any]) -> bytes:
    """Compact JSON. A lone surrogate of an upstream, which UTF-8 can't carry, stays an escape."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _speaks(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")
    if isinstance(delta, Mapping):
        return any(delta.get(name) for name in _SAID)
    return bool(choice.get("text"))


def _index(choice: Mapping[str, Any]) -> int:
    index = choice.get("index", 0)
    return index if isinstance(index, int) else 0
