"""A replay: governor and router over the steps of a trace. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from appliance.operations.replay import deciding
from appliance.operations.replay.deciding import World
from appliance.operations.replay.governed import Governed
from appliance.operations.replay.under import Under
from appliance.operations.replay.values import (
    Asked,
    Model,
    Plugged,
    Remote,
    Report,
    Sampled,
    Spoke,
    Step,
    Taken,
    Trace,
    Usual,
    Verdict,
)

QUEUE_NOTE = (
    "Each request is decided by itself: how queues and temperatures would have gone had earlier ones been "
    "answered elsewhere can't be known."
)


def replay(trace: Trace, under: Under) -> Report:
    """What would have happened under these settings."""
    governed, world = Governed(under), World()
    verdicts: list[Verdict] = []
    lost = 0
    for at, steps in groupby(trace.steps, key=lambda step: step.at):
        for asked in _moment(at, list(steps), governed, world):
            found = (
                deciding.written(asked, at, world, governed, under)
                if isinstance(asked, Asked)
                else deciding.recorded(asked, at, governed, under)
            )
            if found is None:
                lost += 1
            else:
                verdicts.append(found)
    governed.pass_time(trace.ends)
    governed.end(trace.ends)
    return Report(
        trace,
        tuple(governed.moved),
        _plain(governed.seconds),
        _plain(governed.recorded_seconds),
        tuple(verdicts),
        (*trace.notes, *_notes(trace, world, verdicts, lost)),
    )


def _moment(at: float, steps: list[Step], governed: Governed, world: World) -> Iterable[Asked | Taken]:
    """All that has this time: first what the machine is, then its samples, then speeds; the requests are left
    for the router, whatever the order of the lines."""
    governed.pass_time(at)
    for step in steps:
        what = step.what
        if isinstance(what, Plugged):
            governed.plug(at, what)
        elif isinstance(what, Model):
            world.models[what.model] = what
        elif isinstance(what, Remote):
            world.remotes[what.name] = what
    for step in steps:
        if isinstance(step.what, Usual):
            governed.usual(step.what)
    samples = [step.what for step in steps if isinstance(step.what, Sampled)]
    if samples:
        governed.sample(at, samples)
    for step in steps:
        if isinstance(step.what, Spoke):
            governed.speed(at, step.what)
    return [step.what for step in steps if isinstance(step.what, (Asked, Taken))]


def _plain(seconds: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {
        device: {state: round(spent, 3) for state, spent in each.items()} for device, each in seconds.items()
    }


def _notes(trace: Trace, world: World, verdicts: list[Verdict], lost: int) -> list[str]:
    steps = [step.what for step in trace.steps]
    notes = []
    if verdicts:
        notes.append(QUEUE_NOTE)
    if any(isinstance(step, Taken) for step in steps):
        notes.append(
            "Recorded decisions keep the engines, queues and remotes of then. Heat counts for a model by the "
            "devices of its last reply; before its first one, that of all counts."
        )
    if lost:
        many = "1 recorded decision" if lost == 1 else f"{lost:,} recorded decisions"
        notes.append(f"{many} came without the machine's state, and can't be made again.")
    if any(isinstance(step, Asked) for step in steps) and not world.models:
        notes.append('No line says which model is served ("kind": "model"): every one is taken as idle here.')
    seeded = any(isinstance(step, Usual) for step in steps)
    spoke = sum(isinstance(step, Spoke) for step in steps)
    if not seeded:
        told = "The trace tells no speeds" if not spoke else "Usual speeds come from the trace alone"
        notes.append(f"{told}: speeds of before it are not known, and `throttled` needs a usual speed.")
    return notes
