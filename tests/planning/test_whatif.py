"""The what-if table: more context never means more, and smaller KV types never mean less."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.gguf import Header
from appliance.planning import DeviceMemory, PlanRequest, WhatIf, what_if
from appliance.units import GIB, MIB
from tests.planning.machines import BUILD, HOST, gpu, llama_like, moe_like

HEADERS = {"dense": llama_like(), "moe": moe_like(), "long": llama_like(context=131_072)}


def rows(header: Header, *devices: DeviceMemory, parallel: int = 2, **request: Any) -> tuple[WhatIf, ...]:
    """The table for a plan of so many slots; `asked` is the number of slots that was asked for."""
    request["parallel"] = request.pop("asked", None)
    return what_if(header, devices, HOST, PlanRequest(**request), engine_build=BUILD, parallel=parallel)


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(sorted(HEADERS)), st.integers(1_000, 24_000), st.integers(1, 4))
def test_more_context_never_means_more_layers_nor_a_faster_full_context(
    name: str, free: int, parallel: int
) -> None:
    found = rows(HEADERS[name], gpu(free * MIB, bandwidth=360e9), parallel=parallel)
    for first, second in pairwise(found):
        if first.kv_type != second.kv_type or not second.fits:
            continue
        assert first.ctx < second.ctx
        assert first.fits
        assert first.gpu_layers >= second.gpu_layers
        if first.gpu_layers == second.gpu_layers and first.gpu_layers:
            assert first.cpu_moe <= second.cpu_moe


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(sorted(HEADERS)), st.integers(1_000, 24_000))
def test_a_smaller_kv_type_fits_wherever_a_larger_one_does_with_about_as_many_layers(
    name: str, free: int
) -> None:
    """One layer less is possible: attention unpacks a quantised cache, and that copy takes memory."""
    card = gpu(free * MIB, backend="vulkan")  # CUDA unpacks a quantised cache into a copy
    found = {(row.kv_type, row.ctx): row for row in rows(HEADERS[name], card)}
    for (kv_type, ctx), row in found.items():
        smaller = {"f16": "q8_0", "q8_0": "q4_0"}.get(kv_type)
        if smaller is None or not row.fits:
            continue
        assert found[smaller, ctx].fits
        assert found[smaller, ctx].gpu_layers >= row.gpu_layers - 1


def test_a_full_context_is_never_faster_than_an_empty_one() -> None:
    for row in rows(llama_like(context=131_072), gpu(12 * GIB, bandwidth=360e9)):
        if row.decode is not None and row.decode_full is not None:
            assert row.decode_full <= row.decode


def test_contexts_end_at_the_trained_one() -> None:
    assert max(row.ctx for row in rows(llama_like(context=40_960))) == 32_768
    assert {row.ctx for row in rows(llama_like(context=2_048))} == {4_096}


def test_heads_that_no_block_of_32_divides_have_f16_only() -> None:
    odd = llama_like(n_embd=1_280, n_head=16, n_head_kv=16)  # 80 to a head
    assert {row.kv_type for row in rows(odd)} == {"f16"}


@pytest.mark.parametrize("asked", [None, 3])
def test_slots_are_those_that_were_asked_for_or_of_the_plan(asked: int | None) -> None:
    assert {row.parallel for row in rows(llama_like(), gpu(24 * GIB), parallel=2, asked=asked)} == {
        asked or 2
    }
