"""Chunks of the cache are moved only on request, and only where the engine can do it rightly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.gguf import Header, shape_of
from appliance.planning import Plan, PlanRequest, Projector, make_plan, parse_flags
from appliance.planning.choice.reuse import why_none
from tests.planning.machines import BUILD, HOST, llama_like

HEADER = llama_like()
SHAPE = shape_of(HEADER)
PROJECTOR = Projector(weights=1, compute=1)


def plan(tokens: int, header: Header = HEADER, mmproj: Projector | None = None) -> Plan:
    request = PlanRequest(ctx=4_096, parallel=2, cache_reuse=tokens)
    return make_plan(
        header,
        (),
        HOST,
        request,
        model="m",
        engine_build=BUILD,
        mmproj=mmproj,
    )


def said(found: Plan) -> str:
    return " ".join(reason.text for reason in found.reasons if reason.code == "cache_reuse")


def test_it_is_off_unless_asked_for() -> None:
    found = plan(0)
    assert "--cache-reuse" not in found.flags
    assert (found.cache_reuse, said(found)) == (0, "")


def test_what_was_asked_for_stands_in_the_flags_and_is_told() -> None:
    found = plan(256)
    assert found.flags[found.flags.index("--cache-reuse") + 1] == "256"
    assert parse_flags(found.flags).cache_reuse == found.cache_reuse == 256
    assert "replies differ" in said(found)


def test_with_pictures_it_is_left_out_and_told() -> None:
    found = plan(256, mmproj=PROJECTOR)
    assert (found.cache_reuse, "--cache-reuse" in found.flags) == (0, False)
    assert "pictures" in said(found)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (replace(SHAPE, recurrent_layers=(True,) * SHAPE.n_layer), "running state"),
        (replace(SHAPE, n_swa=512, swa_layers=(True,) * SHAPE.n_layer), "sliding window"),
        (replace(SHAPE, cache_layers=(False,) * SHAPE.n_layer), "no cache"),
        (replace(SHAPE, encoder=True), "no cache"),
        (replace(SHAPE, known=False), "not known"),
    ],
)
def test_caches_that_can_not_be_moved_are_not(shape: object, why: str) -> None:
    """A recurrent one above all: `llama_memory_recurrent` says that it can, and its state is wrong then."""
    assert why in (why_none(HEADER, shape, None) or "")  # type: ignore[arg-type]


@pytest.mark.parametrize(("arch", "further"), [("qwen2vl", {"rope.dimension_sections": 16}), ("step35", {})])
def test_positions_that_can_not_be_turned_stay(arch: str, further: dict[str, int]) -> None:
    """`llama_kv_cache::get_can_shift`: not with several positions per token, nor for Step 3.5."""
    header = llama_like(arch=arch, further=further)
    assert why_none(header, shape_of(header), None) is not None


def test_real_models(smollm2_path: object, gemma3_path: object) -> None:
    """SmolLM2 has a plain cache, Gemma 3 a sliding window."""
    from appliance.gguf import read_slim

    plain, window = (read_slim(path).header for path in (smollm2_path, gemma3_path))  # type: ignore[arg-type]
    assert why_none(plain, shape_of(plain), None) is None
    assert "sliding window" in (why_none(window, shape_of(window), None) or "")
