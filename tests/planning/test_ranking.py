"""Which member of a family comes first: the rule of docs/planner.md, by tables and by properties."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.planning import DeviceMemory, HostMemory, PlanRequest
from appliance.planning.ranking import (
    Rated,
    active_params,
    base_ctx_of,
    bits_of,
    kept,
    quality,
    rank,
    rough_speed,
    where_of,
)
from appliance.planning.rough import Fit
from appliance.units import GIB
from tests.planning.machines import gpu, llama_like, moe_like, plan

GOAL = 15.0


def rated(ref: str = "m:Q4_K_M", *, params: float = 8e9, bits: float = 4.85, **further: Any) -> Rated:
    values: dict[str, Any] = {
        "kind": "chat", "n_bytes": int(params * bits / 8), "restricted": False, "where": "gpu", "ctx": 8_192,
        "decode": 40.0, **further,
    }  # fmt: skip
    return Rated(ref, params=params, bits=bits, **values)


rows = st.lists(
    st.builds(
        rated,
        st.uuids().map(str),
        params=st.floats(1e8, 1e11),
        bits=st.floats(1.6, 16.5),
        kind=st.sampled_from(["chat", "other", "embedding", "rerank"]),
        restricted=st.booleans(),
        where=st.sampled_from(["gpu", "partly", "cpu", "no", None]),
        ctx=st.none() | st.sampled_from([4_096, 8_192, 16_384]),
        decode=st.none() | st.floats(0.1, 300),
        active=st.none() | st.floats(1e8, 1e10),
    ),
    max_size=12,
    unique_by=lambda row: row.ref,
)


def order(members: list[Rated], goal: float = GOAL, base: int | None = 8_192) -> list[str]:
    return [one.row.ref for one in rank(members, decode_goal=goal, base_ctx=base)]


@given(rows, st.randoms())
def test_the_order_of_the_catalog_does_not_matter(members: list[Rated], random: Any) -> None:
    mixed = list(members)
    random.shuffle(mixed)
    assert order(mixed) == order(members)
    assert sorted(order(members)) == sorted(row.ref for row in members)


@given(rows)
def test_what_fits_comes_before_what_does_not_and_free_licences_before_limited_ones(
    members: list[Rated],
) -> None:
    ranked = rank(members, decode_goal=GOAL, base_ctx=8_192)
    for first, second in pairwise(ranked):
        if first.row.kind != second.row.kind:
            continue
        fits = [one.row.where not in ("no", None) for one in (first, second)]
        assert fits[0] >= fits[1]
        if all(fits):
            assert first.row.restricted <= second.row.restricted


@given(rows)
def test_members_for_other_uses_are_not_mixed_with_those_for_chat(members: list[Rated]) -> None:
    kinds = [one.row.kind for one in rank(members, decode_goal=GOAL)]
    assert kinds == sorted(kinds, key=["chat", "other", "embedding", "rerank"].index)


@given(rows)
def test_the_gpu_at_the_goal_comes_first_whatever_else_is_better(members: list[Rated]) -> None:
    here = rated("here", params=1e9)
    ranked = rank([*members, here], decode_goal=GOAL, base_ctx=8_192)
    before = ranked[: [one.row.ref for one in ranked].index("here")]
    assert all(one.standing == "gpu_at_goal" and quality(one.row) >= quality(here) for one in before)


@given(rows, st.floats(1, 100), st.floats(1, 100))
def test_a_higher_goal_is_never_reached_by_more_members(members: list[Rated], a: float, b: float) -> None:
    def below(goal: float) -> set[str]:
        return {o.row.ref for o in rank(members, decode_goal=goal) if o.standing == "below_goal"}

    assert below(min(a, b)) <= below(max(a, b))


@given(st.floats(0.5, 34), st.floats(0.5, 34))
def test_more_bits_never_keep_less(a: float, b: float) -> None:
    assert kept(min(a, b)) <= kept(max(a, b))


@pytest.mark.parametrize("ratio", [1.5, 1.8, 2.4])
def test_four_bits_of_the_larger_model_beat_eight_of_the_next_smaller(ratio: float) -> None:
    large, small = rated(params=4e9 * ratio, bits=4.85), rated(params=4e9, bits=8.5)
    assert quality(large) > quality(small)


@pytest.mark.parametrize("bits", [2.0, 2.6, 3.1, 3.4])
def test_below_three_and_a_half_bits_the_smaller_model_is_the_better_one(bits: float) -> None:
    assert quality(rated(params=4e9 * 1.8, bits=bits)) < quality(rated(params=4e9, bits=8.5))


def test_a_model_whose_speed_or_context_is_short_stands_behind_and_says_why() -> None:
    ranked = rank(
        [
            rated("slow", params=32e9, decode=3.0),
            rated("short", params=14e9, ctx=4_096),
            rated("split", params=14e9, where="partly", decode=20.0),
            rated("small", params=4e9),
            rated("none", params=70e9, where="no"),
        ],
        decode_goal=GOAL,
        base_ctx=8_192,
    )
    assert [one.row.ref for one in ranked] == ["small", "split", "short", "slow", "none"]
    assert ranked[2].reason == "on the GPU, but only 4096 tokens of context"
    assert ranked[3].reason == "on the GPU, under the goal of 15 tokens/s"


def test_where_all_are_too_slow_the_fastest_comes_first() -> None:
    slow = [rated("large", params=8e9, where="cpu", decode=4.0), rated("small", where="cpu", decode=9.0)]
    assert order(slow) == ["small", "large"]


def test_an_unknown_speed_counts_as_reached() -> None:
    assert order([rated("known", params=4e9), rated("unknown", decode=None)]) == ["unknown", "known"]


def test_what_does_not_fit_stands_smallest_first() -> None:
    members = [rated("big", params=70e9, where="no"), rated("less", params=32e9, where="no")]
    assert order(members) == ["less", "big"]


def test_experts_count_as_the_mean_of_all_and_of_those_at_work() -> None:
    mixture = rated(params=30e9, active=3e9)
    assert quality(rated(params=8e9)) < quality(mixture) < quality(rated(params=14e9))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("qwen3-30b-a3b : MoE 3.3B active", 3.3e9), ("qwen3-30b-a3b-instruct-2507 : ", 3e9),
        ("gemma-4-26b-a4b-it : ", 4e9), ("llama-3.1-8b-instruct : ", None), ("phi-4-14b : ", None),
    ],
)  # fmt: skip
def test_active_parameters_are_read_from_notes_and_names(text: str, found: float | None) -> None:
    assert active_params(text, 30e9) == found


@pytest.mark.parametrize(
    ("quant", "low", "high"),
    [("Q4_K_M", 4.5, 5.0), ("Q8_0", 8.4, 8.7), ("IQ2_XS", 2.2, 2.5), ("MXFP4", 4.2, 4.3), ("BF16", 16, 16)],
)
def test_bits_by_the_name_of_a_quantisation(quant: str, low: float, high: float) -> None:
    found = bits_of(quant)
    assert found is not None
    assert low <= found <= high


def test_a_name_of_no_known_form_has_no_bits() -> None:
    assert bits_of("custom") is None


def test_experts_in_ram_are_not_all_on_the_gpu() -> None:
    split = plan(moe_like(), gpu(8 * GIB))
    assert (split.gpu_layers, where_of(split)) == (49, "partly")
    assert where_of(plan(llama_like(), gpu(16 * GIB))) == "gpu"
    assert where_of(plan(llama_like())) == "cpu"


@pytest.mark.parametrize("where", ["gpu", "partly", "cpu"])
def test_rough_speeds_fall_with_the_bytes_and_with_the_share_in_ram(where: Any) -> None:
    card = DeviceMemory("GPU0", "card", "cuda", 8 * GIB, 7 * GIB, bandwidth=360e9)
    host, fit = HostMemory(32 * GIB, 24 * GIB, bandwidth=40e9), Fit(where, "", "rule")

    def speed(n_bytes: int, share: float = 1.0) -> float:
        found = rough_speed(fit, n_bytes, share, [card], host, PlanRequest())
        assert found is not None
        return found

    assert speed(4 * GIB) > speed(12 * GIB)
    assert speed(4 * GIB, 0.1) > speed(4 * GIB)


def test_a_speed_with_an_unknown_bandwidth_is_unknown() -> None:
    card = DeviceMemory("GPU0", "card", "cuda", 8 * GIB, 7 * GIB)
    host = HostMemory(32 * GIB, 24 * GIB, bandwidth=40e9)
    assert rough_speed(Fit("gpu", "", "rule"), GIB, 1.0, [card], host, PlanRequest()) is None
    assert rough_speed(Fit("no", "", "rule"), GIB, 1.0, [card], host, PlanRequest()) is None


def test_the_base_context_is_the_profile_s_within_what_the_model_was_trained_for() -> None:
    assert [base_ctx_of(profile) for profile in ("chat", "docs", "batch")] == [8_192, 16_384, 4_096]
    assert base_ctx_of("docs", 2_048) == 2_048


def test_a_limited_licence_stands_behind_worse_models_that_fit() -> None:
    limited = replace(rated("limited", params=14e9), restricted=True)
    assert order([limited, rated("free", params=4e9)]) == ["free", "limited"]
