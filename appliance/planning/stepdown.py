"""After a load that ran out of memory: what the next plan may take, and what it gave up. Pure.

The first step takes a tenth of the buffers at the place that ran out, the next ones more at once: what the
engine says when it ends does not tell how much there really is.
"""

from __future__ import annotations

from collections.abc import Mapping

from appliance.planning.memory.cache import bytes_per_32
from appliance.planning.result import Plan, Reason
from appliance.planning.values import HOST
from appliance.units import MIB

MAX_STEPS = 4
"""Loads after the first one, before the failure is told as it is."""
_KEPT = (0.9, 0.8, 0.65, 0.5)
"""Share of the failed plan's buffers there, by step."""
_LEAST = 32 * MIB
"""A step takes at least this much less: a tenth of a small plan is less than plans are exact."""


def limits_after(
    plan: Plan, where: str | None, step: int = 1, before: Mapping[str, int] | None = None
) -> Mapping[str, int]:
    """Bytes that the next plan may take, by place, after `plan` ran out of memory at `where`.

    `where` is a device's name or `Host`; None, or a place that the plan did not use: unknown, so every place
    gives. `step` counts from 1. What earlier steps allowed (`before`) is never exceeded.
    """
    share = _KEPT[min(step, len(_KEPT)) - 1]
    taken = {place.name: place for place in (*plan.devices, plan.host)}
    if where is None or where not in taken:
        places = [device.name for device in plan.devices] or [HOST]
    elif where == HOST and plan.shared:
        places = [HOST, *plan.shared]  # their memory is RAM: both are the same bytes
    else:
        places = [where]
    limits = dict(before or {})
    for name in places:
        buffers = taken[name].needed - taken[name].overhead  # the driver's part gets no smaller
        allowed = taken[name].overhead + max(min(int(buffers * share), buffers - _LEAST), 0)
        limits[name] = min(allowed, limits.get(name, allowed))
    return limits


def given_up(first: Plan, now: Plan) -> tuple[str, ...]:
    """Degradation codes of what `now` has less of than the plan made first."""
    codes = []
    if now.gpu_layers == 0 < first.gpu_layers:
        codes.append("cpu_fallback")
    elif now.gpu_layers < first.gpu_layers or now.cpu_moe > first.cpu_moe:
        codes.append("fewer_layers")
    if now.ctx < first.ctx:
        codes.append("context_cut")
    if bytes_per_32(now.kv_type) < bytes_per_32(first.kv_type):
        codes.append("kv_quantised")
    return tuple(codes)


def step_line(failed: Plan, where: str | None, now: Plan, what: str = "ran out") -> Reason:
    """What ran out where, and what the next plan has instead."""
    text = f"{_place(failed, where)} {what} with {_size(failed)}; now {_changes(failed, now)}"
    return Reason("step_down", text)


def remembered_line(failed: Plan, where: str, now: Plan | None, when: str) -> Reason:
    """The same of an earlier load; `when` is a text. None: nothing that was left open can get smaller."""
    text = f"{_place(failed, where)} ran out before (on {when}) with {_size(failed)}"
    if now is None:
        return Reason("ran_out_here", f"{text}, and nothing that was left open can get smaller")
    return Reason("ran_out_before", f"{text}; now {_changes(failed, now)}")


def with_end(lines: tuple[Reason, ...], model: str, until: str) -> tuple[Reason, ...]:
    """The lines, the last of them with how long that is remembered and what ends it; `until` is a text."""
    end = f"remembered until {until}, or until more memory is free; `appliance up {model} --retry` forgets it"
    return (*lines[:-1], Reason(lines[-1].code, f"{lines[-1].text} ({end})"))


def is_less(plan: Plan, failed: Plan) -> bool:
    """Whether a plan is worth a try after another one ran out of memory."""
    return plan.fits and plan.flags != failed.flags


def _place(plan: Plan, where: str | None) -> str:
    known = where is not None and where in {HOST, *(device.name for device in plan.devices)}
    return f"memory of {where}" if known and where != HOST else "RAM" if known else "memory"


def tried_line(plan: Plan) -> str:
    """A plan in a few words, those that tell it from the one before among them."""
    experts = f", experts of {plan.cpu_moe} blocks in RAM" if plan.cpu_moe else ""
    return f"{_size(plan)}, {plan.n_ubatch} tokens at once{experts}"


def _size(plan: Plan) -> str:
    layers = f"{plan.gpu_layers} layers on the GPU, " if plan.gpu_layers else ""
    return f"{layers}{plan.parallel} x {plan.ctx} tokens, {plan.kv_type}"


def _changes(failed: Plan, now: Plan) -> str:
    """The numbers of `now` that differ, in words."""
    parts = []
    if now.gpu_layers != failed.gpu_layers:
        parts.append(f"{now.gpu_layers} layers on the GPU")
    if (now.parallel, now.ctx) != (failed.parallel, failed.ctx):
        parts.append(f"{now.parallel} x {now.ctx} tokens")
    if now.kv_type != failed.kv_type:
        parts.append(f"a {now.kv_type} cache")
    if now.n_ubatch != failed.n_ubatch:
        parts.append(f"{now.n_ubatch} tokens at once")
    if now.cpu_moe != failed.cpu_moe:
        parts.append(f"experts of {now.cpu_moe} blocks in RAM")
    if now.mmproj != failed.mmproj:
        parts.append("the projector in RAM")
    if now.draft != failed.draft:
        parts.append("the draft model in RAM" if now.draft else "no draft model")
    return ", ".join(parts) or "the same"
