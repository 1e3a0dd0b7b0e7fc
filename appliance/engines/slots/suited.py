"""Which launches have prompts to keep, and which can't keep them, by what is known of the engines. Pure."""

from __future__ import annotations

from collections.abc import Collection

from appliance.engines.values import Build, Launch
from appliance.planning import Plan

_TEXTLESS = frozenset({"embedding", "rerank"})


def converses(launch: Launch, use: Collection[str]) -> bool:
    """A prompt of it can come again, longer. Embeddings and rankings are worked on anew each time."""
    return not launch.reranking and not (launch.embedding and set(use) <= _TEXTLESS)


def why_never(build: Build, launch: Launch) -> str | None:
    """Why its prompts are not kept, whatever a proof says; None: a proof decides."""
    if build.kind == "llama-cpp-python":
        return "llama-cpp-python has no way to save a slot"
    if launch.mmproj is not None and launch.plan.mmproj is not None:
        return "prompts of a model with a projector may hold pictures, and builds differ in saving those"
    if launch.draft is not None and launch.plan.draft is not None:
        return "the engine saves nothing of a draft model"
    return None


def bytes_per_token(plan: Plan) -> float | None:
    """What the plan reckons that one token takes in a slot; None: it does not tell."""
    kv = plan.host.kv + sum(device.kv for device in plan.devices)
    tokens = plan.ctx * plan.parallel
    return kv / tokens if kv > 0 and tokens > 0 else None
