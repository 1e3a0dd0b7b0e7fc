"""What a kind of engine can be told, so that no plan is made that it would not follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from appliance.engines.values import EngineKind, Launch

Feature = Literal["adapters", "cpu_moe", "draft", "mmproj", "reranking", "split", "tensor_split"]
"""Several LoRA adapters, experts in RAM, a draft model, a projector, scores for texts, a row or tensor split,
shares of several devices."""
WORDS: Mapping[Feature, str] = {
    "adapters": "apply several adapters",
    "cpu_moe": "keep experts in RAM",
    "draft": "use a draft model",
    "mmproj": "use a projector for pictures",
    "reranking": "serve a model for reranking",
    "split": "share a model by rows or tensors",
    "tensor_split": "share a model in given parts",
}

_CANNOT: dict[EngineKind, frozenset[Feature]] = {
    "llama-server": frozenset(),
    "xllamacpp": frozenset(),
    # its server has no place for tensors by name; its drafts come from the prompt alone; a projector needs a
    # chat format that is written for that very model; it takes one adapter, and has no address for scores
    "llama-cpp-python": frozenset({"adapters", "cpu_moe", "draft", "mmproj", "reranking"}),
}


def can(kind: EngineKind, feature: Feature) -> bool:
    """Whether engines of this kind, of the versions that are let in, can be told it."""
    return feature not in _CANNOT[kind]


def needed(launch: Launch) -> tuple[Feature, ...]:
    """What a launch needs beyond layers, context and slots."""
    plan = launch.plan
    wanted: dict[Feature, bool] = {
        "adapters": len(launch.lora) > 1,
        "cpu_moe": plan.cpu_moe > 0,
        "draft": launch.draft is not None and plan.draft is not None,
        "mmproj": launch.mmproj is not None and plan.mmproj is not None,
        "reranking": launch.reranking,
        "split": plan.split != "layer",
        "tensor_split": len(plan.tensor_split) > 1,
    }
    return tuple(feature for feature, is_wanted in wanted.items() if is_wanted)
