"""The settings of a plan that change its speed and nothing of what it serves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from appliance.planning import Plan
from appliance.planning.memory.cache import quantised
from appliance.planning.result import N_BATCH, FlashAttention

ENGINE_UBATCH = 512
"""`n_ubatch` of llama.cpp's common/common.h; its `n_batch` is planning's N_BATCH."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """What may be turned."""

    threads: int | None
    """None: the engine's own count."""
    threads_batch: int | None
    """For prompts; None: as many as `threads`."""
    n_batch: int
    n_ubatch: int
    flash_attn: FlashAttention


def of_plan(plan: Plan) -> Knobs:
    """As the plan has them."""
    return Knobs(plan.threads, plan.threads_batch, plan.n_batch, plan.n_ubatch, plan.flash_attn)


def engine_defaults(plan: Plan) -> Knobs:
    """What the engine would do by itself with the same model, layers, context and slots.

    Flash attention stays on where the plan can't do without it.
    """
    needed = quantised(plan.kv_type) or plan.split == "tensor"
    return Knobs(None, None, N_BATCH, ENGINE_UBATCH, "on" if needed else "auto")


def with_knobs(plan: Plan, knobs: Knobs) -> Plan:
    """The plan with these settings. Its bytes are as they were: the caller has them measured."""
    flags = plan.flags
    for name, value in (
        ("-fa", knobs.flash_attn), ("-b", knobs.n_batch), ("-ub", knobs.n_ubatch),
        ("-t", knobs.threads), ("-tb", knobs.threads_batch),
    ):  # fmt: skip
        flags = _with_flag(flags, name, value)
    return replace(
        plan,
        threads=knobs.threads,
        threads_batch=knobs.threads_batch,
        n_batch=knobs.n_batch,
        n_ubatch=knobs.n_ubatch,
        flash_attn=knobs.flash_attn,
        flags=flags,
    )


def same_memory(one: Knobs, other: Knobs) -> bool:
    """Whether an engine takes the same memory with both: threads cost none."""
    return replace(one, threads=None, threads_batch=None) == replace(other, threads=None, threads_batch=None)


def words(knobs: Knobs, than: Knobs) -> str:
    """What differs, for a person: `256 tokens at once, flash attention off`; empty where nothing does."""
    found = []
    if knobs.n_ubatch != than.n_ubatch:
        found.append(f"{knobs.n_ubatch} tokens at once")
    if knobs.n_batch != than.n_batch:
        found.append(f"batches of {knobs.n_batch}")
    if knobs.flash_attn != than.flash_attn:
        found.append(f"flash attention {knobs.flash_attn}")
    if knobs.threads != than.threads:
        found.append("the engine's own threads" if knobs.threads is None else f"{knobs.threads} threads")
    if knobs.threads_batch != than.threads_batch:
        count = knobs.threads_batch
        found.append("no other threads for prompts" if count is None else f"{count} threads for prompts")
    return ", ".join(found)


def _with_flag(flags: tuple[str, ...], name: str, value: object) -> tuple[str, ...]:
    """The flags with this one set, or without it for None; every other one stays where it is."""
    found = list(flags)
    if name in found:
        at = found.index(name)
        found[at : at + 2] = [] if value is None else [name, str(value)]
    elif value is not None:
        at = found.index("-ub") + 2 if "-ub" in found else len(found)
        found[at:at] = [name, str(value)]
    return tuple(found)
