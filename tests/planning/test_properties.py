"""What holds for every machine, model and request."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.gguf import Header
from appliance.planning import HostMemory, MemoryPlan, Plan, parse_flags
from appliance.units import GIB, MIB
from tests.planning.machines import flag, gpu, llama_like, moe_like, plan

WINDOW = {"attention.sliding_window": 512, "attention.key_length": 256, "attention.value_length": 256}
STATE = {"ssm.conv_kernel": 4, "ssm.inner_size": 4096, "ssm.state_size": 128, "ssm.group_count": 16}
MODELS = [
    llama_like(),
    llama_like(n_layer=16, n_embd=2_048, n_ff=8_192, n_vocab=128_256, context=131_072, tied=True),
    llama_like(arch="gemma3", n_layer=26, n_embd=1_152, n_ff=6_912, n_head=4, n_head_kv=1, further=WINDOW),
    llama_like(arch="qwen35", further=STATE),
    moe_like(),
]
Listed = tuple[int | None, str, bool | None, bool]
models = st.sampled_from(MODELS)
mebibytes = st.integers(0, 40_000)
profiles = st.sampled_from(["chat", "docs", "batch"])
requests = st.fixed_dictionaries(
    {
        "ctx": st.none() | st.integers(1, 100_000),
        "parallel": st.none() | st.integers(1, 16),
        "gpu_layers": st.none() | st.integers(-1, 60),
        "kv_type": st.none() | st.sampled_from(["f16", "q8_0", "q4_0"]),
        "profile": profiles,
        "embedding": st.booleans(),
        "reserve": st.integers(0, 4_000).map(lambda n: n * MIB),
        "n_ubatch": st.none() | st.sampled_from([64, 512, 2_048]),
        "cpu_moe": st.none() | st.integers(0, 60),
        "split": st.sampled_from(["layer", "row", "tensor"]),
    }
)
devices = st.lists(
    st.builds(
        lambda free, backend, integrated, software: (free, backend, integrated, software),
        st.none() | mebibytes,
        st.sampled_from(["cuda", "vulkan", "metal", "rocm"]),
        st.sampled_from([None, True, False]),
        st.booleans(),
    ),
    max_size=3,
)


def _everything(found: Plan) -> tuple[MemoryPlan, ...]:
    return (*found.devices, found.host)


@settings(max_examples=150, deadline=2_000)
@given(models, devices, mebibytes, requests)
def test_sums_flags_and_promises(
    header: Header,
    listed: list[tuple[int | None, str, bool | None, bool]],
    ram: int,
    request: dict[str, Any],
) -> None:
    machine = [
        gpu(
            None if free is None else free * MIB,
            name=f"GPU{n}",
            backend=backend,
            integrated=inside,
            software=soft,
        )
        for n, (free, backend, inside, soft) in enumerate(listed)
    ]
    found = plan(header, *machine, host=HostMemory(64 * GIB, ram * MIB, 4), **request)

    for place in _everything(found):
        assert min(place.model, place.kv, place.compute, place.overhead) >= 0
        if place.free is None:
            assert place.spare is None
        else:
            assert place.spare == place.free - place.reserve - place.needed
            assert place.spare >= 0 or not found.fits
    _check_flags(found, machine_names=[d.name for d in machine])
    _check_request(found, request)


def _check_flags(found: Plan, machine_names: list[str]) -> None:
    assert int(flag(found, "-ngl")) == found.gpu_layers
    assert int(flag(found, "-c")) == found.ctx * found.parallel
    assert int(flag(found, "-np")) == found.parallel
    assert flag(found, "-ctk") == flag(found, "-ctv") == found.kv_type
    assert flag(found, "-fa") == found.flash_attn
    assert int(flag(found, "-ub")) == found.n_ubatch
    assert flag(found, "-fit") == "off"
    parsed = parse_flags(found.flags)
    assert parsed.render() == found.flags
    assert (parsed.gpu_layers, parsed.ctx_total) == (found.gpu_layers, found.ctx * found.parallel)
    assert (parsed.parallel, parsed.kv_type, parsed.n_ubatch) == (
        found.parallel,
        found.kv_type,
        found.n_ubatch,
    )
    assert (parsed.cpu_moe, parsed.split) == (found.cpu_moe, found.split)
    assert parsed.tensor_split == found.tensor_split
    assert sum(found.tensor_split) in (0, found.gpu_layers)
    used = [d.name for d in found.devices]
    if "-dev" in found.flags:
        assert flag(found, "-dev") == (",".join(used) or "none")
    else:
        assert used == machine_names
    assert found.ctx % 256 == 0
    assert 0 <= found.gpu_layers <= found.n_layer + 1


def _check_request(found: Plan, request: dict[str, Any]) -> None:
    ctx, parallel, layers, kv = (request[k] for k in ("ctx", "parallel", "gpu_layers", "kv_type"))
    assert not isinstance(ctx, int) or 0 <= found.ctx - ctx < 256
    assert parallel in (None, found.parallel)
    assert kv in (None, found.kv_type)
    if isinstance(layers, int) and found.devices:
        assert found.gpu_layers == (found.n_layer + 1 if layers < 0 else min(layers, found.n_layer + 1))


@settings(max_examples=100, deadline=2_000)
@given(models, mebibytes, mebibytes, profiles)
def test_more_memory_never_means_fewer_layers(header: Header, one: int, other: int, profile: str) -> None:
    less, more = sorted((one, other))
    small = plan(header, gpu(less * MIB), profile=profile)
    large = plan(header, gpu(more * MIB), profile=profile)

    assert small.gpu_layers <= large.gpu_layers
    assert small.ctx <= large.ctx


@settings(max_examples=80, deadline=2_000)
@given(models, mebibytes, mebibytes, mebibytes, profiles)
def test_more_memory_on_one_of_two_cards_never_means_less(
    header: Header, one: int, other: int, second: int, profile: str
) -> None:
    less, more = sorted((one, other))
    card = gpu(second * MIB, name="CUDA1")
    small = plan(header, gpu(less * MIB), card, profile=profile)
    large = plan(header, gpu(more * MIB), card, profile=profile)

    assert small.gpu_layers <= large.gpu_layers
    assert small.ctx <= large.ctx


@settings(max_examples=80, deadline=2_000)
@given(models, mebibytes, mebibytes, st.integers(256, 60_000))
def test_an_asked_context_is_kept_and_more_memory_holds_more_layers(
    header: Header, one: int, other: int, ctx: int
) -> None:
    less, more = sorted((one, other))
    small = plan(header, gpu(less * MIB), ctx=ctx)
    large = plan(header, gpu(more * MIB), ctx=ctx)

    assert ctx <= small.ctx == large.ctx < ctx + 256
    assert small.gpu_layers <= large.gpu_layers


@settings(max_examples=80, deadline=2_000)
@given(models, st.integers(1_000, 40_000), st.integers(0, 30_000), profiles)
def test_limits_of_an_earlier_failure_are_kept(header: Header, free: int, limit: int, profile: str) -> None:
    found = plan(header, gpu(free * MIB), profile=profile, limits={"CUDA0": limit * MIB})

    for device in found.devices:
        assert device.needed <= limit * MIB or not found.fits


@settings(max_examples=60, deadline=2_000)
@given(models, st.integers(500, 40_000))
def test_lines_add_up_as_printed(header: Header, free: int) -> None:
    found = plan(header, gpu(free * MIB))
    for name in (*(d.name for d in found.devices), "RAM"):
        said = {r.code: r.text for r in found.reasons if f" on {name} " in r.text and r.n_bytes is not None}
        numbers = {code: int(re.findall(r"(\d+) MiB", text)[0]) for code, text in said.items()}
        taken = sum(numbers.get(c, 0) for c in ("reserve", "weights", "kv", "compute", "overhead"))
        left = numbers["spare"] if "spare" in numbers else -numbers["short"]
        assert numbers["free"] - taken == left
