"""Sampling parameters: llama-server's ranges brought into the remote's, and its defaults pinned."""

from __future__ import annotations

from typing import Any, TypeGuard

PINNED: dict[str, float] = {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "min_p": 0.05}
"""llama-server's defaults. vLLM takes the model's own generation_config.json, else 1.0, 1, off and 0: without
these the two sides would answer differently."""


def bound(made: dict[str, Any]) -> str | None:
    """Bring values into the remote's range where that changes no meaning.

    Returns the name of a field whose value can't be brought there, else None.
    """
    _penalty(made)
    seed = made.get("seed")
    if _number(seed) and seed < 0:
        del made["seed"]  # "a random one" in llama-server
    if _number(made.get("temperature")):
        made["temperature"] = max(0, made["temperature"])  # both mean greedy
    _top(made)
    outside = {"temperature": (0, 2), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
    for name, (low, high) in outside.items():
        if _number(made.get(name)) and not low <= made[name] <= high:
            return name
    return None


def _penalty(made: dict[str, Any]) -> None:
    """repeat_penalty looks at the last repeat_last_n tokens (0: off); vLLM has no window."""
    penalty = made.pop("repeat_penalty", None)
    if _number(penalty) and penalty > 0 and made.get("repeat_last_n") != 0:
        made.setdefault("repetition_penalty", penalty)


def _top(made: dict[str, Any]) -> None:
    if _number(made.get("top_p")):
        # 0 leaves only the likeliest token; vLLM wants more than 0, and this leaves no other either.
        made["top_p"] = min(made["top_p"], 1.0) if made["top_p"] > 0 else 1e-6
    if _number(made.get("min_p")):
        made["min_p"] = max(0.0, min(made["min_p"], 1.0))
    if _number(made.get("top_k")) and made["top_k"] < 0:
        made["top_k"] = -1


def pin(made: dict[str, Any]) -> None:
    """Say what llama-server would use where the client said nothing."""
    for name, value in PINNED.items():
        made.setdefault(name, value)


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
