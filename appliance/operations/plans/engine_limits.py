"""What the chosen engine can't do is not planned for it, and the plan says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from appliance.engines import Build
from appliance.engines.features import WORDS, Feature, can
from appliance.errors import UsageError
from appliance.operations.plans.subject import Subject
from appliance.planning import DeviceMemory, PlanRequest, Reason

_SPLIT_ROWS = frozenset({"cuda", "rocm", "sycl"})
"""Backends with split buffers; on others the engine ends with `does not support split buffers`."""


def within(
    build: Build, devices: Sequence[DeviceMemory], subject: Subject, request: PlanRequest
) -> tuple[Subject, PlanRequest, tuple[Reason, ...]]:
    """What is left of model and wishes for this engine and these devices, and why.

    Raises UsageError for what was asked for and can't be done.
    """
    notes: list[Reason] = []
    if build.kind == "llama-cpp-python" and request.parallel != 1:
        request = replace(request, parallel=1)
        notes.append(
            Reason("slots_engine", "1 slot: llama-cpp-python's server answers one request at a time")
        )
    if subject.mmproj is not None and not can(build.kind, "mmproj"):
        subject = replace(subject, mmproj=None)
        notes.append(Reason("mmproj_engine", f"no pictures: {build.kind} can't be given the projector"))
    if build.kind == "llama-cpp-python" and request.cache_reuse:
        request = replace(request, cache_reuse=0)
        notes.append(Reason("cache_reuse", "no chunks of the cache are reused: llama-cpp-python can't"))
    if subject.draft is not None and not can(build.kind, "draft"):
        subject = replace(subject, draft=None, draft_parts=())
        notes.append(Reason("draft_engine", f"no draft model: {build.kind} can't be given one"))
    _require(build, subject)
    return subject, _possible(build, devices, request), tuple(notes)


def _require(build: Build, subject: Subject) -> None:
    """What makes the model what it is can't be left out."""
    needs: dict[Feature, bool] = {
        "reranking": subject.mode.reranking,
        "adapters": len(subject.adapters) > 1,
    }
    for feature, is_needed in needs.items():
        if is_needed and not can(build.kind, feature):
            raise UsageError(
                f"{build.kind} can't {WORDS[feature]}.",
                cause=f"{subject.label} needs that.",
                hint="Use another engine: --engine xllamacpp or llama-server.",
            )


def _possible(build: Build, devices: Sequence[DeviceMemory], request: PlanRequest) -> PlanRequest:
    if request.cpu_moe and not can(build.kind, "cpu_moe"):
        raise UsageError(
            f"{build.kind} can't keep experts in RAM.",
            hint="Leave --cpu-moe out, or use another engine (--engine).",
        )
    if request.split == "row":
        other = next((d for d in devices if d.integrated is not True and d.backend not in _SPLIT_ROWS), None)
        if other is not None:
            raise UsageError(
                f"{other.name} can't share the rows of a matrix with other devices.",
                cause=f"Engines do that on CUDA and ROCm; {other.name} is a {other.backend} device.",
                hint="Use --split layer.",
            )
    return request if can(build.kind, "cpu_moe") else replace(request, cpu_moe=0)
