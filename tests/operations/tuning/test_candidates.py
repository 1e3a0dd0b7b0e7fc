"""Which settings are tried: few, one change each, the engine's own defaults always among them."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.hardware import Machine
from appliance.operations.tuning.candidates import ENGINE, MOST, candidates, together
from appliance.operations.tuning.knobs import Knobs, engine_defaults, of_plan, with_knobs, words
from appliance.planning import HostMemory, Plan, PlanRequest, make_plan, parse_flags
from appliance.units import GIB
from tests.planning.machines import BUILD, HOST, gpu, llama_like

EIGHT = Machine(cores_physical=8, cores_logical=16, cores_performance=8)


def plan_for(
    *,
    threads: int | None = 8,
    free: int | None = None,
    request: PlanRequest = PlanRequest(ctx=8_192),  # noqa: B008
) -> Plan:
    devices = () if free is None else (gpu(free),)
    host = HostMemory(32 * GIB, 24 * GIB, threads)
    return make_plan(llama_like(), devices, host, request, model="m", engine_build=BUILD)


knobs_of_any_kind = st.builds(
    Knobs,
    threads=st.none() | st.integers(1, 64),
    threads_batch=st.none() | st.integers(1, 64),
    n_batch=st.integers(32, 4_096),
    n_ubatch=st.integers(32, 4_096),
    flash_attn=st.sampled_from(["on", "off", "auto"]),
)


@given(
    threads=st.none() | st.integers(1, 64),
    more=st.integers(0, 64),
    free=st.none() | st.integers(1, 24),
    ctx=st.sampled_from([256, 1_024, 4_096, 16_384]),
    kv=st.sampled_from(["f16", "q8_0"]),
    ubatch=st.none() | st.sampled_from([64, 256, 1_024]),
)
def test_there_are_few_and_each_changes_one_thing(
    threads: int | None, more: int, free: int | None, ctx: int, kv: str, ubatch: int | None
) -> None:
    request = PlanRequest(ctx=ctx, parallel=2, kv_type=kv, n_ubatch=ubatch)
    plan = plan_for(threads=threads, free=None if free is None else free * GIB, request=request)
    machine = Machine(cores_physical=(threads or 1) + more, cores_logical=2 * ((threads or 1) + more))
    found = candidates(plan, machine, asked_ubatch=ubatch is not None)
    assert found[0].name == ENGINE
    assert found[0].knobs == engine_defaults(plan)
    assert len(found) <= MOST
    assert len({one.name for one in found}) == len({one.knobs for one in found}) == len(found)
    own = of_plan(plan)
    for one in found:
        assert one.knobs.n_ubatch <= one.knobs.n_batch  # else the engine would cut it, and call it tuned
        if one.axis:
            changed = sum(a != b for a, b in zip(astuple(one.knobs), astuple(own), strict=True))
            assert changed in (1, 2)
            assert changed == 1 or one.axis in ("threads", "ubatch")
        if ubatch is not None and one.name != ENGINE:
            assert one.knobs.n_ubatch == plan.n_ubatch


def test_the_defaults_of_the_engine_are_those_of_its_source() -> None:
    """llama.cpp, common/common.h: n_batch 2048, n_ubatch 512, flash attention auto, threads left to it."""
    assert engine_defaults(plan_for()) == Knobs(None, None, 2_048, 512, "auto")
    quantised = plan_for(request=PlanRequest(ctx=4_096, kv_type="q8_0"))
    assert engine_defaults(quantised).flash_attn == "on"  # it refuses such a cache without


def test_on_the_cpu_more_threads_are_tried_for_prompts_and_fewer_for_tokens() -> None:
    names = [one.name for one in candidates(plan_for(), EIGHT)]
    assert "prompt threads 16" in names
    assert "threads 6" in names


def test_threads_are_not_tried_where_the_gpu_does_all() -> None:
    found = candidates(plan_for(free=23 * GIB), EIGHT)
    assert {one.axis for one in found} == {"", "ubatch", "flash"}


def test_a_micro_batch_below_that_of_a_picture_is_not_tried() -> None:
    found = candidates(plan_for(), EIGHT, least_ubatch=512)
    assert min(one.knobs.n_ubatch for one in found) == 512


def test_a_micro_batch_longer_than_a_request_can_be_is_not_tried() -> None:
    found = candidates(plan_for(request=PlanRequest(ctx=512)), EIGHT)
    assert max(one.knobs.n_ubatch for one in found) == 512


def test_flash_attention_that_the_cache_needs_is_not_turned_off() -> None:
    found = candidates(plan_for(request=PlanRequest(ctx=4_096, kv_type="q8_0")), EIGHT)
    assert {one.knobs.flash_attn for one in found} == {"on"}


def test_gains_of_several_kinds_are_tried_together() -> None:
    plan = plan_for()
    by_name = {one.name: one for one in candidates(plan, EIGHT)}
    both = together(plan, (by_name["ubatch 256"], by_name["prompt threads 16"]))
    assert both is not None
    assert both.knobs == replace(of_plan(plan), n_ubatch=256, threads_batch=16)
    assert together(plan, (by_name["ubatch 256"], by_name["ubatch 1024"])) is None
    assert together(plan, ()) is None


@given(knobs=knobs_of_any_kind, free=st.none() | st.just(23 * GIB))
def test_settings_stand_in_the_flags_as_in_the_plan(knobs: Knobs, free: int | None) -> None:
    plan = plan_for(free=free)
    tuned = with_knobs(plan, knobs)
    read = parse_flags(tuned.flags)
    assert of_plan(tuned) == knobs
    assert Knobs(read.threads, read.threads_batch, read.n_batch, read.n_ubatch, read.flash_attn) == knobs
    assert parse_flags(with_knobs(tuned, of_plan(plan)).flags) == parse_flags(plan.flags)
    assert (read.ctx_total, read.parallel, read.devices) == (
        parse_flags(plan.flags).ctx_total, plan.parallel, parse_flags(plan.flags).devices,
    )  # fmt: skip


def test_flags_of_others_are_left_alone() -> None:
    plan = replace(plan_for(), flags=(*plan_for().flags, "--no-mmap", "--mlock"))
    assert with_knobs(plan, engine_defaults(plan)).flags[-2:] == ("--no-mmap", "--mlock")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_ubatch": 256}, "256 tokens at once"),
        ({"flash_attn": "off", "threads_batch": 16}, "flash attention off, 16 threads for prompts"),
        ({"threads": None, "n_batch": 64}, "batches of 64, the engine's own threads"),
        ({}, ""),
    ],
)
def test_a_change_in_words(change: dict[str, int | str | None], said: str) -> None:
    own = Knobs(8, None, 2_048, 512, "auto")
    assert words(replace(own, **change), own) == said  # type: ignore[arg-type]


def test_the_planner_itself_takes_what_the_engine_would() -> None:
    """On a CPU: as many threads as performance cores, and everything else as the engine has it."""
    plan = make_plan(llama_like(), (), HOST, PlanRequest(), model="m", engine_build=BUILD)
    assert replace(of_plan(plan), threads=None) == engine_defaults(plan)
    assert plan.threads == HOST.threads
