"""Which settings are the best of those measured. Pure.

All are held against the engine's own defaults, measured in the same round, so that a machine that gets slower
or warmer meanwhile treats all alike. Never slower than those: a setting that loses anywhere more than the
noise is out, whatever it wins elsewhere. With a tie the plan's own settings stay.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.operations.tuning.candidates import ENGINE, PLAN, Candidate
from appliance.operations.tuning.measuring import Speeds

LEAST_NOISE = 0.03
"""Two runs of the same settings differ by so much on a quiet machine."""
KEPT = 3
"""So many candidates, beside the two yardsticks, go on after the first round."""

Rounds = Sequence[Mapping[str, Speeds]]
"""By candidate's name. A candidate that was given up is missing in later rounds."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Speeds over those of the engine's own defaults."""

    prefill: float
    decode: float
    many: float | None = None

    @property
    def all(self) -> tuple[float, ...]:
        return (self.prefill, self.decode) if self.many is None else (self.prefill, self.decode, self.many)

    @property
    def score(self) -> float:
        """The geometric mean."""
        return math.exp(statistics.fmean(math.log(value) for value in self.all))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is kept, and why."""

    name: str
    ratios: Mapping[str, Ratio]
    noise: float
    """Share by which two measurements of the same differ."""
    why: str


def ratios(rounds: Rounds) -> dict[str, Ratio]:
    """Of each candidate: the median over its rounds."""
    found: dict[str, list[Ratio]] = {}
    for one in rounds:
        base = one[ENGINE]
        for name, speeds in one.items():
            found.setdefault(name, []).append(_over(speeds, base))
    return {name: _median(each) for name, each in found.items()}


def noise_of(rounds: Rounds) -> float:
    """By how much two settings swap places without a reason, as a share.

    Half the spread over the rounds of the plan's speeds against the engine's: both are measured in every
    round, so a machine that gets slower all the time does not count.
    """
    pairs = [_over(one[PLAN], one[ENGINE]).all for one in rounds if PLAN in one]
    spreads = [(max(column) - min(column)) / 2 for column in zip(*pairs, strict=True)]
    return max(LEAST_NOISE, max(spreads, default=0.0))


def choose(rounds: Rounds) -> Verdict:
    """The best; the plan's own settings with a tie; the engine's defaults where the plan's are slower."""
    found, noise = ratios(rounds), noise_of(rounds)
    measured = {name: found[name] for name in rounds[-1]}  # those that were given up are not
    never_slower = {name: one for name, one in measured.items() if min(one.all) >= 1 - noise}
    held = PLAN if PLAN in never_slower else ENGINE
    best = max(never_slower, key=lambda name: (never_slower[name].score, name == held))
    better = _clearly(never_slower[best], never_slower[held], noise) and _each_time(rounds, best, held)
    if best != held and better:
        return Verdict(best, found, noise, f"{_gain(found[best])} of the engine's own defaults")
    if held == PLAN:
        return Verdict(
            PLAN, found, noise, "nothing is faster than the plan's own settings by more than chance"
        )
    if PLAN in found:
        return Verdict(ENGINE, found, noise, "the plan's own settings are slower than the engine's defaults")
    return Verdict(
        ENGINE, found, noise, "nothing is faster than the engine's own defaults by more than chance"
    )


def promising(first: Mapping[str, Speeds], tried: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Who goes on after the first round: both yardsticks, and the best of those that are not worse."""
    found = ratios([first])
    others = [one for one in tried if one.name not in (ENGINE, PLAN) and one.name in found]
    least = max(found[name].score for name in (ENGINE, PLAN) if name in found) * (1 - LEAST_NOISE)
    good = [one for one in others if found[one.name].score >= least]
    good = sorted(good, key=lambda one: -found[one.name].score)[:KEPT]
    return tuple(one for one in tried if one.name in (ENGINE, PLAN) or one in good)


def gained(first: Mapping[str, Speeds], tried: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The best change of each axis that won more than chance in the first round."""
    found = ratios([first])
    bar = max(found[name].score for name in (ENGINE, PLAN) if name in found) * (1 + LEAST_NOISE)
    best: dict[str, Candidate] = {}
    for one in tried:
        if not one.axis or one.name not in found or found[one.name].score <= bar:
            continue
        if one.axis not in best or found[one.name].score > found[best[one.axis].name].score:
            best[one.axis] = one
    return tuple(best.values())


def _over(speeds: Speeds, base: Speeds) -> Ratio:
    many = speeds.many / base.many if speeds.many and base.many else None
    return Ratio(speeds.prefill / base.prefill, speeds.decode / base.decode, many)


def _median(each: Sequence[Ratio]) -> Ratio:
    many = [one.many for one in each if one.many is not None]
    return Ratio(
        statistics.median(one.prefill for one in each),
        statistics.median(one.decode for one in each),
        statistics.median(many) if many else None,
    )


def _clearly(best: Ratio, held: Ratio, noise: float) -> bool:
    """Better than what is there by more than chance, and nowhere worse by more than that."""
    pairs = zip(best.all, held.all, strict=True)
    return best.score > held.score * (1 + noise) and all(mine >= its * (1 - noise) for mine, its in pairs)


def _each_time(rounds: Rounds, best: str, held: str) -> bool:
    """Better in every round that both were in: one lucky round is no gain."""
    both = [one for one in rounds if best in one and held in one]
    return all(_over(one[best], one[held]).score > 1 for one in both)


def _gain(ratio: Ratio) -> str:
    many = "" if ratio.many is None else f", all slots x{ratio.many:.2f}"
    return f"prefill x{ratio.prefill:.2f}, decode x{ratio.decode:.2f}{many}"
