"""After memory ran out: each plan takes clearly less, and what was given up is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.gguf import Header, read_header
from appliance.planning import DeviceMemory, HostMemory, Plan, PlanRequest, make_plan
from appliance.planning.stepdown import (
    MAX_STEPS,
    given_up,
    limits_after,
    remembered_line,
    step_line,
    with_end,
)
from appliance.units import GIB, MIB

CARD = DeviceMemory("CUDA0", "Some GPU", "cuda", 8 * GIB, 3000 * MIB)
RAM = HostMemory(32 * GIB, 24 * GIB, 8)


@pytest.fixture(scope="module")
def header(smollm2_path: Path) -> Header:
    return read_header(smollm2_path)


def made(header: Header, request: PlanRequest, *devices: DeviceMemory) -> Plan:
    return make_plan(header, devices or (CARD,), RAM, request, model="m", engine_build="b10434")


def test_every_step_takes_at_least_a_tenth_less_of_the_buffers(header: Header) -> None:
    plan, limits = made(header, PlanRequest()), dict[str, int]()
    for step in range(1, MAX_STEPS + 1):
        limits = dict(limits_after(plan, "CUDA0", step, limits))
        smaller = made(header, PlanRequest(limits=limits))
        assert smaller.fits
        (before,), (after,) = plan.devices, smaller.devices
        buffers = before.needed - before.overhead
        assert after.needed - after.overhead <= buffers * 0.9
        plan = smaller


def test_only_the_place_that_ran_out_is_limited(header: Header) -> None:
    plan = made(header, PlanRequest())
    assert set(limits_after(plan, "CUDA0")) == {"CUDA0"}
    assert set(limits_after(plan, "Host")) == {"Host"}
    assert set(limits_after(plan, None)) == set(limits_after(plan, "unknown")) == {"CUDA0"}
    in_ram = made(header, PlanRequest(gpu_layers=0))
    assert set(limits_after(in_ram, None)) == {"Host"}


def test_memory_that_is_ram_is_limited_as_both(header: Header) -> None:
    shared = replace(CARD, name="Vulkan0", backend="vulkan", integrated=True)
    plan = made(header, PlanRequest(), shared)
    assert plan.shared == ("Vulkan0",)
    assert set(limits_after(plan, "Host")) == {"Host", "Vulkan0"}


def test_an_earlier_limit_is_never_raised(header: Header) -> None:
    plan = made(header, PlanRequest())
    assert limits_after(plan, "CUDA0", 1, {"CUDA0": 5, "Host": 7}) == {"CUDA0": 5, "Host": 7}


def test_what_was_asked_for_is_not_made_smaller(header: Header) -> None:
    asked = PlanRequest(ctx=8192, parallel=2, gpu_layers=31, kv_type="f16", n_ubatch=512)
    plan = made(header, asked)
    assert not made(header, replace(asked, limits=limits_after(plan, "CUDA0"))).fits


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({"ctx": 4096}, ("context_cut",)),
        ({"kv_type": "q8_0"}, ("kv_quantised",)),
        ({"gpu_layers": 20}, ("fewer_layers",)),
        ({"cpu_moe": 3}, ("fewer_layers",)),
        ({"gpu_layers": 0}, ("cpu_fallback",)),
        ({"parallel": 2, "n_ubatch": 512}, ()),
        ({"ctx": 4096, "kv_type": "q4_0", "gpu_layers": 3}, ("fewer_layers", "context_cut", "kv_quantised")),
    ],
)
def test_codes_name_what_an_answer_has_less_of(
    header: Header, change: dict[str, int | str], codes: tuple[str, ...]
) -> None:
    first = made(header, PlanRequest())
    assert (first.ctx, first.parallel, first.kv_type, first.gpu_layers) == (8192, 4, "f16", 31)
    assert given_up(first, replace(first, **change)) == codes  # type: ignore[arg-type]
    assert given_up(replace(first, **change), first) == ()  # type: ignore[arg-type]


def test_a_step_says_what_ran_out_and_what_there_is_instead(header: Header) -> None:
    first = made(header, PlanRequest())
    now = replace(first, ctx=4096, kv_type="q8_0")
    assert step_line(first, "CUDA0", now).text == (
        "memory of CUDA0 ran out with 31 layers on the GPU, 4 x 8192 tokens, f16; "
        "now 4 x 4096 tokens, a q8_0 cache"
    )
    assert step_line(first, "Host", now).text.startswith("RAM ran out")
    assert step_line(first, "unknown", now).text.startswith("memory ran out")


def test_what_is_remembered_says_so_and_how_it_ends(header: Header) -> None:
    first = made(header, PlanRequest())
    lines = [remembered_line(first, "CUDA0", replace(first, ctx=4096), "30 Nov, 18:02")] * 2
    early, last = with_end(tuple(lines), "smol", "1 Dec, 18:02")
    assert early.text == (
        "memory of CUDA0 ran out before (on 30 Nov, 18:02) with 31 layers on the GPU, 4 x 8192 tokens, f16; "
        "now 4 x 4096 tokens"
    )
    assert last.text.startswith(early.text)
    assert "1 Dec, 18:02" in last.text
    assert "`appliance up smol --retry`" in last.text
    assert "nothing" in remembered_line(first, "CUDA0", None, "30 Nov, 18:02").text
