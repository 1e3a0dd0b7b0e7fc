"""Which way of loading suits a model here, and whether its files are read ahead of the engine.

Pure, with reasons. Figures behind the rule: docs/engines.md, "How fast a model loads".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from appliance.engines.startup.page_cache import Cached
from appliance.engines.values import LoadMode
from appliance.planning import Plan
from appliance.units import MIB, size

Where = Literal["gpu", "partial", "cpu"]
"""Where the weights go: all on devices, some, none."""
MARGIN = 512 * MIB
"""RAM that stays free beside a file that is read ahead."""
WORTH = 32 * MIB
"""Bytes that must be missing in RAM before reading ahead is worth a thread."""


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """How the engine reads its file."""

    mode: LoadMode
    reason: str


@dataclass(frozen=True, slots=True)
class Ahead:
    """Whether the files are read ahead of the engine."""

    preheat: bool
    reason: str


def where_of(plan: Plan) -> Where:
    """Where a plan puts the weights."""
    if not plan.devices or plan.gpu_layers == 0:
        return "cpu"
    return "gpu" if plan.gpu_layers > plan.n_layer and plan.cpu_moe == 0 else "partial"


def may_preheat(n_bytes: int, found: Cached | None, spare: int | None) -> Ahead:
    """Read ahead only what is missing, and only when all of it stays: else it would push out something else.

    `found` None: what is in RAM can't be known, so all of it counts as missing. `spare` is `spare_ram()`.
    """
    missing = n_bytes if found is None else found.missing
    if missing < WORTH:
        return Ahead(False, "nearly all of it is in RAM already")
    if spare is None:
        return Ahead(False, "how much RAM is free can't be read")
    if missing + MARGIN > spare:
        return Ahead(False, f"{size(missing)} to read, and only {size(spare)} of RAM to spare")
    return Ahead(True, f"{size(missing)} to read, {size(spare)} of RAM to spare")


def mode_for(where: Where, n_bytes: int, found: Cached | None, spare: int | None) -> ModeChoice:
    """The engine's own choice (a mapped file), unless that would read the file twice.

    A mapped file is read into RAM as a whole before the first tensor goes anywhere. When it does not fit
    there, its beginning is gone by the time it is needed. On the way to a GPU it need not stay in RAM at all.
    """
    missing = n_bytes if found is None else found.missing
    if where == "gpu" and spare is not None and missing + MARGIN > spare:
        return ModeChoice(
            "none", f"all weights go to the GPU, and the file ({size(n_bytes)}) does not fit into spare RAM"
        )
    return ModeChoice("auto", "the file is mapped")
