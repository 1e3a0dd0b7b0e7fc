"""Which batch keeps pauses within the goal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from appliance.operations.tuning.knobs import Knobs
from appliance.operations.tuning.latency import STEP, batch_within, wanted

OWN = Knobs(2, None, 2_048, 512, "auto")


@given(goal_s=st.floats(0.05, 10), prefill=st.floats(1, 100_000), most=st.integers(1, 4_096))
def test_a_batch_keeps_the_goal_or_is_the_least(goal_s: float, prefill: float, most: int) -> None:
    size = batch_within(goal_s, prefill, most)
    assert 1 <= size <= most
    assert size / prefill <= goal_s or size == min(STEP, most)
    assert size == most or (size + STEP) / prefill > goal_s  # the next one up would not


def test_half_a_second_at_211_tokens_a_second() -> None:
    assert batch_within(0.5, 211.0, 2_048) == 96


def test_the_micro_batch_never_exceeds_the_batch() -> None:
    assert wanted(OWN, goal_s=0.5, prefill=211.0, slots=4) == Knobs(2, None, 96, 96, "auto")
    assert wanted(OWN, goal_s=2.0, prefill=400.0, slots=4) == Knobs(2, None, 800, 512, "auto")


def test_a_fast_machine_and_a_single_slot_keep_theirs() -> None:
    assert wanted(OWN, goal_s=0.5, prefill=5_000.0, slots=4) == OWN
    assert wanted(OWN, goal_s=0.5, prefill=50.0, slots=1) == OWN
