"""Whether a plan is made again while its engine is idle, since other programs took its GPU's memory. Pure.

    free memory fell below half the reserve      the first sign; what the engine took itself does not count
    for LOW_FOR_S without a break, and idle      a program that comes and goes is left alone
    a plan for what is free now is smaller       else nothing would be won
    the last reload for this reason is old       at most one in AT_MOST_EVERY_S

When memory comes back nothing happens: the next load plans larger, and no request has to wait for that.
Where the driver does not tell what is free, nothing happens either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from appliance.planning import Plan

LOW_SHARE = 0.5
"""Of the reserve: below that the next large allocation of anyone fails."""
TAKEN_SHARE = 0.25
"""Of the reserve: so much must have been taken since the load, so that a driver that needs more than planned
is no other program."""
LOW_FOR_S = 10.0
AT_MOST_EVERY_S = 600.0
ASK_AGAIN_S = 60.0
"""A plan for what is free now is not made more often."""


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """One device as the driver sees it. Bytes; None is unknown."""

    free: int | None
    ours: int | None
    """Of the engine."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the next step needs; a new one for each load but for `reloaded_at`."""

    after_load: Mapping[str, DeviceNow] = field(default_factory=dict)
    """The first reading of each device with the engine loaded."""
    low_since: float | None = None
    asked_at: float | None = None
    reloaded_at: float | None = None


@dataclass(frozen=True, slots=True)
class Pressure:
    """A device on which other programs left too little."""

    device: str
    free: int
    taken: int
    """Bytes that other programs took since the load."""


def step(
    plan: Plan, devices: Mapping[str, DeviceNow], idle: bool, now: float, memory: Memory
) -> tuple[Memory, Pressure | None]:
    """One more look. The pressure is told once it has lasted, the engine is idle, and a plan may be made.

    `now`: seconds on any steady clock.
    """
    known = {name: seen for name, seen in devices.items() if seen.free is not None}
    memory = replace(memory, after_load={**known, **memory.after_load})
    worst = _worst(plan, known, memory.after_load)
    if worst is None or not idle:
        return replace(memory, low_since=None), None
    since = now if memory.low_since is None else memory.low_since
    memory = replace(memory, low_since=since)
    lasted = now - since >= LOW_FOR_S
    rested = memory.reloaded_at is None or now - memory.reloaded_at >= AT_MOST_EVERY_S
    asked = memory.asked_at is not None and now - memory.asked_at < ASK_AGAIN_S
    if not lasted or not rested or asked:
        return memory, None
    return replace(memory, asked_at=now), worst


def is_better(plan: Plan, now: Plan, device: str) -> bool:
    """Whether the plan for what is free now leaves the device more room; else a reload wins nothing."""
    needed = {one.name: one.needed for one in plan.devices}
    after = {one.name: one.needed for one in now.devices}
    return now.fits and now.flags != plan.flags and after.get(device, 0) < needed.get(device, 0)


def loaded(memory: Memory) -> Memory:
    """Another engine runs now: what was seen with the one before says nothing about it."""
    return Memory(reloaded_at=memory.reloaded_at)


def rebased(memory: Memory) -> Memory:
    """Another engine of ours came or went: what is free counts from now on."""
    return replace(memory, after_load={}, low_since=None)


def reloaded(memory: Memory, now: float) -> Memory:
    """The engine was loaded again for this reason."""
    return replace(memory, low_since=None, reloaded_at=now)


def _worst(
    plan: Plan, known: Mapping[str, DeviceNow], after_load: Mapping[str, DeviceNow]
) -> Pressure | None:
    found = []
    for device in plan.devices:
        seen, first = known.get(device.name), after_load.get(device.name)
        if seen is None or first is None or seen.free is None or first.free is None:
            continue
        grown = 0 if seen.ours is None or first.ours is None else seen.ours - first.ours
        taken = first.free - seen.free - grown
        if device.name in plan.shared:
            continue  # RAM comes and goes, and the system lends and swaps it
        if seen.free < device.reserve * LOW_SHARE and taken >= device.reserve * TAKEN_SHARE:
            found.append(Pressure(device.name, seen.free, taken))
    return min(found, key=lambda one: one.free, default=None)
