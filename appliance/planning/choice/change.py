"""For a plan that does not fit: the one option that alone would make it fit."""

from __future__ import annotations

from dataclasses import replace

from appliance.planning.choice.candidate import Candidate, Estimate
from appliance.planning.choice.estimate import Estimator
from appliance.planning.choice.profiles import largest
from appliance.planning.choice.search import Choice, choose, placed
from appliance.planning.choice.splits import host_room, room_of
from appliance.planning.memory.cache import PAD, quantised
from appliance.planning.result import Reason
from appliance.planning.values import PlanRequest
from appliance.planning.words.explain import lack


def verdict_lines(estimator: Estimator, choice: Choice) -> list[Reason]:
    """For a plan that does not fit: what is needed, what is here, and the smallest change."""
    if choice.fits:
        return []
    lines = [Reason("does_not_fit", f"does not fit: {lack(estimator, choice.candidate)}")]
    left_open = estimator.request.gpu_layers is None
    near = _is_near(estimator, choice.estimate)
    change = _below_the_floors(estimator) if left_open and near else None
    change = change or smallest_change(estimator, choice.candidate)
    if change:
        lines.append(Reason("would_fit", f"the smallest change that would fit: {change}"))
    else:
        lines.append(Reason("would_fit", "no single option makes it fit: take a smaller model or quant"))
    return lines


def _is_near(estimator: Estimator, estimate: Estimate) -> bool:
    """Whether what is missing is no more than caches and buffers: less of them can't win more than all."""
    missing = max(
        (estimate.host.total - room for room in [host_room(estimator)] if room is not None), default=0
    )
    for index, used in enumerate(estimate.devices):
        room = room_of(estimator, index)
        missing = max(missing, used.total - room if room is not None else 0)
    places = (*estimate.devices, estimate.host)
    return missing <= sum(place.kv + place.compute for place in places)


def _below_the_floors(estimator: Estimator) -> str | None:
    """What a person may give up and the planner may not: a second slot, a finer cache, context."""
    request = estimator.request
    options: list[tuple[str, PlanRequest]] = []
    if request.parallel != 1:
        options.append(("--parallel 1", replace(request, parallel=1)))
    if request.kv_type != "q4_0" and not estimator.shape.head_k % 32 and not estimator.shape.head_v % 32:
        options.append(("--kv q4_0", replace(request, kv_type="q4_0")))
    options += [(f"--ctx {ctx}", replace(request, ctx=ctx)) for ctx in (2_048, 1_024) if not request.ctx]
    return next((text for text, asked in options if choose(estimator.asked(asked)).fits), None)


def smallest_change(estimator: Estimator, failed: Candidate) -> str | None:
    """One option that alone would make `failed` fit, in the order in which things should give."""

    def fits(candidate: Candidate) -> bool:
        return placed(estimator, candidate) is not None

    shape = estimator.shape
    if failed.n_ubatch > 512 and not estimator.in_one_piece and fits(replace(failed, n_ubatch=512)):
        return "--ubatch 512"
    can_quantise = not quantised(failed.kv_type) and not shape.head_k % 32 and any(shape.cache_layers)
    if can_quantise and fits(replace(failed, kv_type="q8_0")):
        return "--kv q8_0"
    moe = len(estimator.moe_blocks) and max(estimator.moe_blocks) + 1
    if moe > failed.cpu_moe and failed.gpu_layers and fits(replace(failed, cpu_moe=moe)):
        return f"--cpu-moe {moe}"
    blocks = largest(1, failed.ctx // PAD - 1, lambda n: fits(replace(failed, ctx=n * PAD)))
    if blocks:
        return f"--ctx {blocks * PAD}"
    slots = largest(1, failed.parallel - 1, lambda n: fits(replace(failed, parallel=n)))
    if slots:
        return f"--parallel {slots}"
    for layers in range(failed.gpu_layers - 1, -1, -1):
        if fits(replace(failed, gpu_layers=layers)):
            return f"--gpu-layers {layers}"
    return None
