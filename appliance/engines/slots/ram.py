"""How much RAM llama.cpp may take for prompts that left their slots (`--cache-ram`). Pure.

Its default is 8 GiB beyond everything that is planned. Here it gets a part of what the plan leaves, and no
more than a few full prompts need.
"""

from __future__ import annotations

from appliance.planning import Plan

SHARE = 4
"""A quarter of the RAM that plan and reserve leave over: other models and programs want some, too."""
PROMPTS = 4
"""Full prompts beyond those in the slots."""
MOST = 4 << 30
LEAST = 64 << 20
"""Bytes; less holds no prompt worth the copying."""


def cache_ram_mib(plan: Plan) -> int:
    """MiB; 0 turns it off: RAM is short, or nobody knows how much there is."""
    spare = plan.host.spare
    if spare is None or spare <= 0:
        return 0
    kv = plan.host.kv + sum(device.kv for device in plan.devices)
    one = kv // max(1, plan.parallel)
    size = min(spare // SHARE, PROMPTS * one, MOST)
    return 0 if size < LEAST else size >> 20
