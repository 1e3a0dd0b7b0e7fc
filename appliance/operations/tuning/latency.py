"""How large a batch may be so that it holds no running stream up for longer than `goals.itl_p99`. Pure.

The engine works a batch off as a whole, so while a long prompt is being read every running stream stands
still for one batch. A small batch makes those pauses short and costs prefill speed for everybody.
"""

from __future__ import annotations

from dataclasses import replace

from appliance.operations.tuning.knobs import Knobs

STEP = 32
"""Below this the engine no longer multiplies matrices by blocks."""


def batch_within(goal_s: float, prefill: float, most: int) -> int:
    """The largest batch, in steps of 32 tokens, that takes no longer than the goal; at least one step.

    `prefill`: tokens per second, measured.
    """
    fitting = int(goal_s * prefill) // STEP * STEP
    return max(min(fitting, most), min(STEP, most))


def wanted(knobs: Knobs, *, goal_s: float, prefill: float, slots: int) -> Knobs:
    """The settings with the batch that the goal asks for; as they are with one slot, which disturbs nobody.

    `goal_s`: seconds. `prefill`: tokens per second.
    """
    if slots < 2:
        return knobs
    size = batch_within(goal_s, prefill, knobs.n_batch)
    return replace(knobs, n_batch=size, n_ubatch=min(knobs.n_ubatch, size))
