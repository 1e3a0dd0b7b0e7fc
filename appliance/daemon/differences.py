"""What a load really became, beside its plan: codes for answers, sentences for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.daemon.served import ServingSnapshot
from appliance.engines import EngineSnapshot
from appliance.operations.lessons.read_back import device_of
from appliance.operations.machine.survey import Note
from appliance.planning import Plan
from appliance.planning.values import HOST


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is less than planned."""

    code: str
    """As in `X-Appliance-Degraded`."""
    detail: str


def codes(serving: ServingSnapshot) -> tuple[str, ...]:
    """What an answer lacks: the engine does less than planned, the plan less than the one made first, or
    than before a GPU was lost.
    """
    given_up = serving.plan.given_up if serving.plan is not None else ()
    lost = serving.lost.codes if serving.lost is not None else ()
    return tuple(dict.fromkeys([*(one.code for one in differences(serving)), *given_up, *lost]))


def notes(serving: ServingSnapshot) -> Iterator[Note]:
    """The same for people: what is less than planned, and what ran out of memory on the way to this plan."""
    since, ref = serving.loaded_since, serving.ref.ref if serving.ref is not None else "MODEL"
    if serving.lost is not None:
        yield Note("gpu_lost", serving.lost.detail, serving.lost.fix, serving.lost.since)
    for one in differences(serving):
        yield Note(one.code, f"Less than planned: {one.detail}.", None, since)
    again = f"`appliance down`, then `appliance up {ref} --retry`"
    if texts := _reasons(serving, "step_down"):
        todo = f"Close what else uses the memory; {again} tries the larger plan again."
        yield Note("stepped_down", f"A smaller plan is used: {'; '.join(texts)}.", todo, since)
    if texts := _reasons(serving, "ran_out_before"):
        detail = f"A smaller plan is used because of an earlier load, not of this one: {'; '.join(texts)}."
        yield Note("ran_out_before", detail, f"To try the larger plan now: {again}.", since)
    for text in _reasons(serving, "draft_left_out"):
        todo = "Correct `draft` in the overrides of config.toml, then load the model again."
        yield Note("draft_left_out", f"{text[:1].upper()}{text[1:]}", todo, since)


def _reasons(serving: ServingSnapshot, code: str) -> tuple[str, ...]:
    reasons = serving.plan.reasons if serving.plan is not None else ()
    return tuple(reason.text for reason in reasons if reason.code == code)


def differences(serving: ServingSnapshot) -> tuple[Difference, ...]:
    """What the engine does less than its plan says.

    Only what its log and its answers tell; what they leave open is no difference.
    """
    plan, engine = serving.plan, serving.engine
    if plan is None or engine is None:
        return ()
    found = []
    planned, real = plan.gpu_layers, engine.gpu_layers
    unused = _unused(plan, engine)
    if planned > 0 and real == 0:
        found.append(Difference("cpu_fallback", f"{planned} layers were planned on the GPU, and it has none"))
    elif unused:
        found.append(Difference("cpu_fallback", f"the plan uses {' and '.join(unused)}, the engine does not"))
    elif real is not None and real < planned:
        found.append(
            Difference("fewer_layers", f"{planned} layers were planned on the GPU, and it has {real}")
        )
    if engine.ctx is not None and engine.ctx < plan.ctx:
        found.append(
            Difference("context_cut", f"{plan.ctx} tokens were planned, and a request has {engine.ctx}")
        )
    return tuple(found)


def _unused(plan: Plan, engine: EngineSnapshot) -> list[str]:
    """Devices that should hold weights and do not.

    Told only where the log names the planned devices: shared rows stand under a name of their own.
    """
    holding = {device_of(name) for name, sizes in engine.buffers.items() if sizes.get("model", 0.0) > 0}
    planned = {device.name for device in plan.devices if device.model > 0}
    on_devices = holding - {HOST}
    return sorted(planned - on_devices) if on_devices and on_devices <= planned else []
