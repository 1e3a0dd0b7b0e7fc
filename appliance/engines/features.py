"""What a kind of engine can be told, so that no plan is made that it would not follow."""

from __future__ import annotations

from typing import Literal

from appliance.engines.values import EngineKind, Launch

Feature = Literal["cpu_moe", "draft", "mmproj", "split", "tensor_split"]
"""Experts in RAM, a draft model, a projector, a row or tensor split, shares of several devices."""

_CANNOT: dict[EngineKind, frozenset[Feature]] = {
    "llama-server": frozenset(),
    "xllamacpp": frozenset(),
    # its server has no place for tensors by name; its drafts come from the prompt alone; a projector needs a
    # chat format that is written for that very model
    "llama-cpp-python": frozenset({"cpu_moe", "draft", "mmproj"}),
}


def can(kind: EngineKind, feature: Feature) -> bool:
    """Whether engines of this kind, of the versions that are let in, can be told it."""
    return feature not in _CANNOT[kind]


def needed(launch: Launch) -> tuple[Feature, ...]:
    """What a launch needs beyond layers, context and slots."""
    plan = launch.plan
    wanted: dict[Feature, bool] = {
        "cpu_moe": plan.cpu_moe > 0,
        "draft": launch.draft is not None and plan.draft is not None,
        "mmproj": launch.mmproj is not None and plan.mmproj is not None,
        "split": plan.split != "layer",
        "tensor_split": len(plan.tensor_split) > 1,
    }
    return tuple(feature for feature, is_wanted in wanted.items() if is_wanted)
