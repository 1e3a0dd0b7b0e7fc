"""Measure a model's settings on this machine, in rounds, and say which are the best.

Every setting is tried once per round, in turn, and every second round runs backwards: what the machine does
meanwhile hits all alike. After the first round only those go on that may win, and what won on different
axes is tried together.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from appliance.hardware import Machine
from appliance.operations.tuning import latency
from appliance.operations.tuning.candidates import Candidate, candidates, together
from appliance.operations.tuning.choice import Ratio, Verdict, choose, gained, promising, ratios
from appliance.operations.tuning.fitting import Ground
from appliance.operations.tuning.measuring import Bench, Speeds, Work
from appliance.operations.tuning.rounds import OnStep, Rounds, work_for
from appliance.operations.tuning.tuned_file import Entry, Goal

ROUNDS = 3
BUSY_SHARE, OVERLOADED_SHARE = 0.5, 1.0
"""Of the cores, in other programs' hands: then figures say little, or nothing at all."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What is looked for, and how thoroughly."""

    goal: Goal = "throughput"
    pause_s: float = 0.5
    """`goals.itl_p99`: how long a running stream may stand still."""
    rounds: int = ROUNDS
    work: Work = field(default_factory=Work)


@dataclass(frozen=True, slots=True)
class Pause:
    """How long a whole batch holds the running streams up, and what the goal would ask for."""

    goal_s: float
    batch_s: float
    """With the settings that are kept."""
    wanted: int
    """Tokens in a batch that keeps the goal."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was measured, and what is kept of it."""

    tried: tuple[Candidate, ...]
    speeds: Mapping[str, Speeds]
    """Medians over the rounds."""
    verdict: Verdict
    kept: Candidate
    pause: Pause | None
    """None with one slot: there is nobody to wait."""
    goal: Goal
    load: float | None
    failed: Mapping[str, str]
    """Settings that the engine did not start with, and why."""
    work: Work

    @property
    def ratio(self) -> Ratio:
        """Of what is kept, over the engine's own defaults."""
        return self.verdict.ratios[self.kept.name]

    def entry(self, now: float) -> Entry:
        """What is noted of it; `now` is Unix time."""
        knobs, ratio = self.kept.knobs, self.ratio
        return Entry(
            at=now, goal=self.goal, threads=knobs.threads, threads_batch=knobs.threads_batch,
            n_batch=knobs.n_batch, n_ubatch=knobs.n_ubatch, flash_attn=knobs.flash_attn,
            prefill=ratio.prefill, decode=ratio.decode, many=ratio.many, load=self.load,
        )  # fmt: skip


async def to_try(ground: Ground, bench: Bench, machine: Machine) -> tuple[Candidate, ...]:
    """The candidates whose plans fit; the engine's defaults and the plan are always among them."""
    asked = ground.request.n_ubatch is not None
    every = candidates(bench.plan, machine, least_ubatch=ground.least_ubatch, asked_ubatch=asked)
    fitting = [not one.axis or await ground.with_settings(bench.plan, one.knobs) is not None for one in every]
    return tuple(one for one, fits in zip(every, fitting, strict=True) if fits)


async def tune(
    bench: Bench, tried: Sequence[Candidate], aim: Aim, *, on_step: OnStep = lambda *_: None
) -> Outcome:
    """Measure the candidates and choose. Raises EngineError when the engine's own defaults don't start."""
    load, work = load_average(), await work_for(bench, tried, aim.work)
    tried = tuple(one for one in tried if one.axis != "ubatch" or one.knobs.n_ubatch <= work.prompt)
    rounds = Rounds(bench, work, on_step)
    first = await rounds.one(tried)
    going, both = promising(first, tried), together(bench.plan, gained(first, tried))
    if both is not None and aim.rounds > 1:
        tried, going = (*tried, both), (*going, both)
    for number in range(1, aim.rounds):
        await rounds.one(going[::-1] if number % 2 else going)
    verdict = choose(rounds.done)
    kept = next(one for one in tried if one.name == verdict.name)
    if aim.goal == "latency":
        kept, verdict = await _short_pauses(rounds, tried[0], kept, verdict, aim.pause_s)
        tried = tried if kept in tried else (*tried, kept)
    speeds = rounds.medians()
    pause = _pause(bench, kept, speeds[kept.name], aim.pause_s)
    return Outcome(tried, speeds, verdict, kept, pause, aim.goal, load, rounds.failed, work)


def load_average() -> float | None:
    """Programs that want a core, over the last minute; None where the system does not tell (Windows)."""
    with contextlib.suppress(AttributeError, OSError):
        return os.getloadavg()[0]
    return None


def busy(load: float | None, machine: Machine, share: float = BUSY_SHARE) -> bool:
    """Whether other programs take so much that figures say little."""
    return load is not None and load > share * (machine.cores_logical or 1)


async def _short_pauses(
    rounds: Rounds, base: Candidate, kept: Candidate, verdict: Verdict, goal_s: float
) -> tuple[Candidate, Verdict]:
    """The same with batches that keep the goal, measured beside the engine's defaults (`base`) once more."""
    prefill, slots = rounds.medians()[kept.name].prefill, rounds.bench.plan.parallel
    short = kept
    for _ in range(2):  # smaller batches are slower ones, so the first size may still be too large
        knobs = latency.wanted(kept.knobs, goal_s=goal_s, prefill=prefill, slots=slots)
        if knobs in (kept.knobs, short.knobs):
            break
        candidate = Candidate(f"batches of {knobs.n_batch}", knobs, "batch")
        found = await rounds.one((base, candidate))
        if candidate.name not in found:
            break
        short, prefill = candidate, found[candidate.name].prefill
    if short is kept:
        return kept, verdict
    why = f"{short.name} tokens keep pauses near {goal_s:g} s, as --goal latency asks"
    seen = {**verdict.ratios, short.name: ratios(rounds.done)[short.name]}
    return short, replace(verdict, name=short.name, ratios=seen, why=why)


def _pause(bench: Bench, kept: Candidate, speeds: Speeds, goal_s: float) -> Pause | None:
    if bench.plan.parallel < 2:
        return None
    wanted = latency.batch_within(goal_s, speeds.prefill, kept.knobs.n_batch)
    return Pause(goal_s, kept.knobs.n_batch / speeds.prefill, wanted)
