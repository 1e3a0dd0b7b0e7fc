"""One usage for a reply of several choices.

llama-server streams one usage per choice, and its own plain reply has the first one's only. OpenAI's is one
for the whole request: each prompt once, and the tokens of all choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from appliance.gateway.chunks import Chunk, dumps


class Tally:
    """Sums the usages of one local stream. `choices` = prompts times `n`."""

    def __init__(self, choices: int, n: int) -> None:
        self._choices = choices
        self._n = n
        self._prompts: dict[int, int] = {}
        """Prompt -> its tokens."""
        self._cached: dict[int, int] = {}
        self._reply = 0

    def count(self, chunk: Chunk) -> Chunk:
        """The chunk with the usage of the whole request so far. Of one choice: as it came."""
        usage = chunk.data.get("usage") if chunk.data else None
        if self._choices == 1 or chunk.kind != "json" or not isinstance(usage, Mapping):
            return chunk
        prompt = min(chunk.indices, default=0) // self._n
        self._prompts[prompt] = _number(usage, "prompt_tokens")
        self._cached[prompt] = _number(usage.get("prompt_tokens_details"), "cached_tokens")
        self._reply += _number(usage, "completion_tokens")
        data = {**(chunk.data or {}), "usage": {**usage, **self._sums(usage)}}
        payload = dumps(data)
        return replace(chunk, raw=b"data: " + payload + b"\n\n", payload=payload, data=data)

    def _sums(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        asked = sum(self._prompts.values())
        made: dict[str, Any] = {
            "completion_tokens": self._reply,
            "prompt_tokens": asked,
            "total_tokens": asked + self._reply,
        }
        details = usage.get("prompt_tokens_details")
        if isinstance(details, Mapping):
            made["prompt_tokens_details"] = {**details, "cached_tokens": sum(self._cached.values())}
        return made


def _number(counts: object, name: str) -> int:
    value = counts.get(name) if isinstance(counts, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
