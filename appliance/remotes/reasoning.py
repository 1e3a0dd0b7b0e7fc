"""Reasoning text has two names: vLLM says `reasoning`, llama-server and most clients `reasoning_content`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def rename_reasoning(chunk: dict[str, Any]) -> dict[str, Any]:
    """The chunk or reply with `reasoning_content` beside `reasoning`; the same object when there is none."""
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return chunk
    renamed = [_choice(choice) for choice in choices]
    if all(new is old for new, old in zip(renamed, choices, strict=True)):
        return chunk
    return {**chunk, "choices": renamed}


def _choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    for part in ("delta", "message"):
        inner = choice.get(part)
        if (
            isinstance(inner, Mapping)
            and inner.get("reasoning") is not None
            and "reasoning_content" not in inner
        ):
            return {**choice, part: {**inner, "reasoning_content": inner["reasoning"]}}
    return choice
