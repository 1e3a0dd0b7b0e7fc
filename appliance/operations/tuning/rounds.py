"""Rounds of measurements: each candidate once per round, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from appliance.errors import EngineError
from appliance.operations.tuning.candidates import ENGINE, Candidate
from appliance.operations.tuning.knobs import with_knobs
from appliance.operations.tuning.measuring import Bench, Speeds, Work, measured, pilot

OnStep = Callable[[int, Candidate, Speeds | None], None]
"""Round, candidate, and its speeds; None: it did not start."""


class Rounds:
    """What was measured so far."""

    def __init__(self, bench: Bench, work: Work, on_step: OnStep) -> None:
        self.bench, self.work = bench, work
        self._on_step = on_step
        self.done: list[Mapping[str, Speeds]] = []
        self.failed: dict[str, str] = {}
        """Candidates that did not start, and why."""

    async def one(self, tried: Sequence[Candidate]) -> Mapping[str, Speeds]:
        """Measure each once. One that does not start is out; that of the engine's own defaults is raised."""
        found: dict[str, Speeds] = {}
        number = len(self.done) + 1
        for candidate in tried:
            if candidate.name in self.failed:
                continue
            try:
                plan = with_knobs(self.bench.plan, candidate.knobs)
                found[candidate.name] = await measured(self.bench, plan, self.work)
            except EngineError as error:
                if candidate.name == ENGINE:
                    raise
                self.failed[candidate.name] = error.cause or error.message
            self._on_step(number, candidate, found.get(candidate.name))
        self.done.append(found)
        return found

    def medians(self) -> dict[str, Speeds]:
        """Of each candidate, over its rounds."""
        found: dict[str, list[Speeds]] = {}
        for one in self.done:
            for name, speeds in one.items():
                found.setdefault(name, []).append(speeds)
        return {name: median_of(each) for name, each in found.items()}


async def work_for(bench: Bench, tried: Sequence[Candidate], work: Work) -> Work:
    """Prompts as long as the largest micro-batch, shorter on a slow machine, and within the context."""
    largest = max(one.knobs.n_ubatch for one in tried)
    base = next(one for one in tried if one.name == ENGINE)
    room = bench.plan.ctx - work.decode - 1
    wished = Work(max(1, min(max(work.prompt, largest), room)), work.decode, work.repeats, work.many_repeats)
    return wished.within(await pilot(bench, with_knobs(bench.plan, base.knobs), work))


def median_of(each: Sequence[Speeds]) -> Speeds:
    """The median of each measure."""
    many = [one.many for one in each if one.many is not None]
    return Speeds(
        statistics.median(one.prefill for one in each),
        statistics.median(one.decode for one in each),
        statistics.median(many) if many else None,
    )
