"""For a plan that does not fit: the one option that alone would make it fit."""

from __future__ import annotations

from dataclasses import replace

from appliance.planning.choice.candidate import Candidate
from appliance.planning.choice.estimate import Estimator
from appliance.planning.choice.profiles import largest
from appliance.planning.choice.search import Choice, placed
from appliance.planning.memory.cache import PAD, quantised
from appliance.planning.result import Reason
from appliance.planning.words.explain import lack


def verdict_lines(estimator: Estimator, choice: Choice) -> list[Reason]:
    """For a plan that does not fit: what is needed, what is here, and the smallest change."""
    if choice.fits:
        return []
    lines = [Reason("does_not_fit", f"does not fit: {lack(estimator, choice.candidate)}")]
    change = smallest_change(estimator, choice.candidate)
    if change:
        lines.append(Reason("would_fit", f"the smallest change that would fit: {change}"))
    else:
        lines.append(Reason("would_fit", "no single option makes it fit: take a smaller model or quant"))
    return lines


def smallest_change(estimator: Estimator, failed: Candidate) -> str | None:
    """One option that alone would make `failed` fit, in the order in which things should give."""

    def fits(candidate: Candidate) -> bool:
        return placed(estimator, candidate) is not None

    shape = estimator.shape
    if failed.n_ubatch > 512 and not shape.encoder and fits(replace(failed, n_ubatch=512)):
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
