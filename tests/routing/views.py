"""Builders of the router's values: an idle, cool machine and one healthy remote, changed by keyword."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from appliance.routing import Features, LocalView, RemoteView, View

LOCAL = LocalView(
    state="ready",
    slots=2,
    running=0,
    waiting=0,
    max_queue=8,
    predicted_wait_s=0.0,
    ctx=4096,
    thermal="cool",
    factor=1.0,
    serves=True,
)
REMOTE = RemoteView("vllm", up=True, has_model=True, max_model_len=32_768)
FEATURES = Features("qwen3-8b", prompt_tokens=100, max_tokens=200)
BUSY: dict[str, Any] = {"state": "busy", "running": 2, "waiting": 3, "predicted_wait_s": 4.0}
SWAMPED: dict[str, Any] = {**BUSY, "predicted_wait_s": 12.0}
FULL: dict[str, Any] = {**BUSY, "waiting": 8, "predicted_wait_s": 30.2}


def request(**changes: Any) -> Features:
    """A short chat request."""
    return replace(FEATURES, **changes)


def view(
    policy: str = "local-first",
    local: dict[str, Any] | None = None,
    remotes: tuple[dict[str, Any], ...] = ({},),
    *,
    no_local: bool = False,
    power: str = "unknown",
    battery: str = "full",
) -> View:
    """`local` and `remotes` are changes to the healthy ones; max_wait 8 s, goals 2 s and 15 tokens/s."""
    here = None if no_local else replace(LOCAL, **(local or {}))
    there = tuple(replace(REMOTE, **changes) for changes in remotes)
    return View(policy, 8.0, 2.0, here, there, 15.0, power, battery)  # type: ignore[arg-type]
