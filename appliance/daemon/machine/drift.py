"""Whether an idle engine holds much more memory than its plan: then it is started afresh. Pure.

    a baseline is taken once it has served its first requests    buffers for real work come late
    now - max(baseline, plan) - what it may keep besides         the drift, for RAM and for each device
    more than 512 MiB, and more than a quarter of the plan       else it is not worth a load
    in three looks in a row, the engine idle all along           what comes and goes is left alone
    at most once in ten minutes

What is unknown drifts nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from appliance.planning import HOST, MemoryPlan, Plan
from appliance.units import MIB

FIRST_REQUESTS = 3
"""After so many the buffers for real work are there."""
IDLE_S = 10.0
"""So long it must have been idle before a figure counts."""
LOOK_EVERY_S = 10.0
LOOKS = 3
LEAST = 512 * MIB
SHARE = 0.25
"""Of the plan."""
AT_MOST_EVERY_S = 600.0
ENGINE_DEFAULT_CACHE_MIB = 8192
"""RAM that llama-server keeps for prompts that left their slots, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How far one memory is beyond what it should be. Bytes."""

    place: str
    now: int
    due: int
    """What it held after its first requests, or as planned."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the next look needs; a new one for each engine but for `recycled_at`."""

    baseline: Mapping[str, int] = field(default_factory=dict)
    looks: int = 0
    """In a row in which it was too much."""
    recycled_at: float | None = None


def look(
    plan: Plan, held: Mapping[str, int | None], spare: Mapping[str, int], now: float, memory: Memory
) -> tuple[Memory, Drift | None]:
    """One look at an engine that is idle and has served its first requests.

    `held`: its own bytes of RAM (`Host`) and of each device. `spare`: what it may keep besides, by place.
    The drift is told once it has lasted, and at most once in ten minutes. `now`: seconds on a steady clock.
    """
    known = {place: n_bytes for place, n_bytes in held.items() if n_bytes is not None}
    memory = replace(memory, baseline={**known, **memory.baseline})
    worst = _worst(plan, known, spare, memory.baseline)
    if worst is None:
        return replace(memory, looks=0), None
    memory = replace(memory, looks=memory.looks + 1)
    rested = memory.recycled_at is None or now - memory.recycled_at >= AT_MOST_EVERY_S
    return memory, worst if memory.looks >= LOOKS and rested else None


def used(memory: Memory) -> Memory:
    """It has had a request since: looks in a row begin anew."""
    return replace(memory, looks=0)


def loaded(memory: Memory) -> Memory:
    """Another engine runs now."""
    return Memory(recycled_at=memory.recycled_at)


def recycled(memory: Memory, now: float) -> Memory:
    """The engine was started afresh for this reason."""
    return replace(memory, looks=0, recycled_at=now)


def _worst(
    plan: Plan, known: Mapping[str, int], spare: Mapping[str, int], baseline: Mapping[str, int]
) -> Drift | None:
    found = []
    for memory in (plan.host, *plan.devices):
        now, first = known.get(memory.name), baseline.get(memory.name)
        if now is None or first is None:
            continue
        due = max(first, _own(plan, memory)) + spare.get(memory.name, 0)
        if now - due > max(LEAST, SHARE * memory.needed):
            found.append(Drift(memory.name, now, due))
    return max(found, key=lambda one: one.now - one.due, default=None)


def _own(plan: Plan, memory: MemoryPlan) -> int:
    """Of the plan, what is the process's alone: weights in RAM are a mapped file, unless that is off."""
    mapped = memory is plan.host and "--no-mmap" not in plan.flags
    return memory.needed - memory.model if mapped else memory.needed


def spare_of(cache_ram_mib: int | None) -> Mapping[str, int]:
    """RAM for prompts that left their slots: it fills up as requests come, as planned."""
    allowed = ENGINE_DEFAULT_CACHE_MIB if cache_ram_mib is None else cache_ram_mib
    return {HOST: allowed * MIB}
