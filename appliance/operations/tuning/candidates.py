"""Which settings are tried: one change of the plan each, and few. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from appliance.hardware import Machine
from appliance.operations.tuning.knobs import Knobs, engine_defaults, of_plan
from appliance.planning import Plan
from appliance.planning.memory.cache import quantised

MOST = 8
ENGINE, PLAN, TOGETHER = "engine", "plan", "together"
_LEAST_UBATCH, _MOST_UBATCH = 64, 2_048
_FEWER_FROM = 8
"""With fewer threads than this, leaving some out leaves too few."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to start the engine."""

    name: str
    knobs: Knobs
    axis: str = ""
    """What it changes; changes of different axes can be made together."""


def candidates(
    plan: Plan, machine: Machine, *, least_ubatch: int = 0, asked_ubatch: bool = False
) -> tuple[Candidate, ...]:
    """At most `MOST`; the engine's own defaults first, since all is held against them, then the plan's.

    `least_ubatch`: below it pictures fail. `asked_ubatch`: the user chose the micro-batch.
    """
    own = of_plan(plan)
    found = [Candidate(ENGINE, engine_defaults(plan)), Candidate(PLAN, own)]
    if not asked_ubatch:
        found += _sizes(plan, own, max(least_ubatch, _LEAST_UBATCH))
    if plan.flash_attn == "auto" and not quantised(plan.kv_type):
        found.append(Candidate("flash off", replace(own, flash_attn="off"), "flash"))
    if works_on_cpu(plan):
        found += _threads(own, machine)
    distinct: dict[Knobs, Candidate] = {}
    for one in found:
        distinct.setdefault(one.knobs, one)
    return tuple(distinct.values())[:MOST]


def works_on_cpu(plan: Plan) -> bool:
    """Whether some of the model is computed by the CPU, so that threads matter."""
    return not plan.devices or plan.gpu_layers <= plan.n_layer or plan.cpu_moe > 0


def together(plan: Plan, winners: tuple[Candidate, ...]) -> Candidate | None:
    """The changes of several axes in one; None for fewer than two."""
    if len({one.axis for one in winners}) < 2:
        return None
    own = of_plan(plan)
    changed = own
    for one in winners:
        names = ("threads", "threads_batch", "n_batch", "n_ubatch", "flash_attn")
        theirs = {n: getattr(one.knobs, n) for n in names if getattr(one.knobs, n) != getattr(own, n)}
        changed = replace(changed, **theirs)
    return Candidate(TOGETHER, changed, TOGETHER)


def _sizes(plan: Plan, own: Knobs, least: int) -> list[Candidate]:
    """Half and twice the micro-batch, as far as a request can be that long."""
    most = min(_MOST_UBATCH, plan.ctx)
    sizes = [size for size in (own.n_ubatch // 2, own.n_ubatch * 2) if least <= size <= most]
    return [
        Candidate(f"ubatch {size}", replace(own, n_ubatch=size, n_batch=max(own.n_batch, size)), "ubatch")
        for size in sizes
    ]


def _threads(own: Knobs, machine: Machine) -> list[Candidate]:
    """More threads for prompts, which compute; fewer for tokens, which wait for memory."""
    if own.threads is None:
        return []
    more = {machine.cores_physical, machine.cores_logical} - {None, own.threads}
    found = [
        Candidate(f"prompt threads {count}", replace(own, threads_batch=count), "prompt threads")
        for count in sorted(count for count in more if count is not None and count > own.threads)
    ]
    if own.threads >= _FEWER_FROM:
        fewer = own.threads * 3 // 4
        knobs = replace(own, threads=fewer, threads_batch=own.threads_batch or own.threads)
        found.append(Candidate(f"threads {fewer}", knobs, "threads"))
    return found
