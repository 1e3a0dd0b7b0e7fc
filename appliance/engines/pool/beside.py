"""Whether a model is served well enough beside those that are resident. Pure."""

from __future__ import annotations

from appliance.planning import Plan

ENOUGH_CTX = 16_384
"""Tokens per request that a plan beside others must offer, where the model alone would have more."""


def good_beside(plan: Plan, alone: Plan) -> bool:
    """`plan` is made with some models still resident, `alone` with all of them gone.

    Good enough to leave them where they are: no layer less on the GPU, no coarser KV cache, no part moved to
    RAM, and either the same context or one that is enough for most work. Slots may be fewer.
    """
    if not plan.fits:
        return False
    same = (
        plan.gpu_layers >= alone.gpu_layers
        and plan.cpu_moe <= alone.cpu_moe
        and plan.kv_type == alone.kv_type
        and plan.mmproj == alone.mmproj
        and plan.draft == alone.draft
        and not set(plan.given_up) - set(alone.given_up)
    )
    return same and plan.ctx >= min(alone.ctx, ENOUGH_CTX)
