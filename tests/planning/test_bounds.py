"""The quick looks of the search are never more than what a candidate takes: nothing that fits is missed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.gguf import Header
from appliance.planning import PlanRequest
from appliance.planning.choice.candidate import Candidate
from appliance.planning.choice.estimate import Estimator
from appliance.planning.choice.splits import spread
from appliance.planning.values import Split
from tests.planning.machines import BUILD, GIB, HOST, MIB, gpu, llama_like, moe_like

MODELS = [llama_like(), llama_like(tied=True), moe_like()]
cards = st.lists(st.tuples(st.integers(0, 40_000), st.none() | st.just(128 * MIB)), min_size=1, max_size=3)


@settings(max_examples=150, deadline=2_000)
@given(
    st.sampled_from(MODELS),
    cards,
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from(["layer", "row", "tensor"]),
)
def test_bounds_are_below_the_estimate(
    header: Header, listed: list[tuple[int, int | None]], layers: int, cpu_moe: int, split: Split
) -> None:
    devices = [
        gpu(free * MIB, name=f"CUDA{n}", max_tensor=limit, total=64 * GIB)
        for n, (free, limit) in enumerate(listed)
    ]
    estimator = Estimator(header, devices, HOST, PlanRequest(split=split), engine_build=BUILD, learned={})
    candidate = Candidate(min(layers, estimator.all_layers), 4_096, 2, "q8_0", cpu_moe=cpu_moe)
    candidate = candidate if estimator.moe_blocks else replace(candidate, cpu_moe=0)

    for spread_out in spread(estimator, candidate):
        found = estimator.estimate(spread_out)
        on_devices = sum(device.model + device.kv for device in found.devices)
        if candidate.gpu_layers:
            assert estimator.at_least(spread_out) <= on_devices
        assert estimator.at_least_in_ram(spread_out) <= found.host.model + found.host.kv
