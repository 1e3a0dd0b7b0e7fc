"""Does it fit, in one word: from a plan, and from the size alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.planning import (
    DeviceMemory,
    Fit,
    HostMemory,
    Load,
    PlanRequest,
    Where,
    fit_of,
    gpu_compute,
    kv_bytes,
    rough_fit,
    state_bytes,
)
from appliance.planning.rough import _beside
from appliance.units import GIB, MIB
from tests.planning import machines, truth
from tests.planning.machines import HOST, gpu, llama_like, plan

ASKED = PlanRequest()
RAM = HostMemory(32 * GIB, 24 * GIB, 8)


def rough(weights: int, *devices: DeviceMemory, host: HostMemory = RAM, context: int | None = 32_768) -> Fit:
    return rough_fit(weights, context, devices, host, ASKED)


class TestFromAPlan:
    def test_all_layers_on_the_card(self) -> None:
        fit = fit_of(plan(llama_like(), gpu(24 * GIB)))
        assert (fit.where, fit.how, fit.estimated) == ("gpu", "computed", False)
        assert fit.text == "all layers on CUDA0, 4 x 16,384 tokens"

    def test_a_part_of_the_layers_is_counted(self) -> None:
        made = plan(llama_like(), gpu(4 * GIB))
        fit = fit_of(made)
        assert fit.where == "partly"
        assert fit.text.startswith(f"{made.gpu_layers} of 33 layers on CUDA0")

    def test_without_a_card_it_is_the_cpu(self) -> None:
        assert fit_of(plan(llama_like())).where == "cpu"

    def test_what_does_not_fit_says_how_much_is_missing(self) -> None:
        fit = fit_of(plan(llama_like(), host=HostMemory(4 * GIB, 3 * GIB, 8)))
        assert fit.where == "no"
        assert fit.text.startswith("Host lacks ")


class TestFromTheSize:
    @pytest.mark.parametrize(
        ("weights", "free", "available", "where"),
        [
            (5 * GIB, 24 * GIB, 24 * GIB, "gpu"),
            (5 * GIB, 4 * GIB, 24 * GIB, "partly"),
            (20 * GIB, 1 * GIB, 24 * GIB, "cpu"),
            (20 * GIB, 12 * GIB, 4 * GIB, "no"),
            (30 * GIB, 12 * GIB, 24 * GIB, "partly"),
        ],
    )
    def test_a_card_then_a_split_then_ram(
        self, weights: int, free: int, available: int, where: Where
    ) -> None:
        fit = rough(weights, gpu(free), host=HostMemory(32 * GIB, available, 8))
        assert fit.where == where
        assert (fit.how, fit.estimated) == ("rule", True)

    def test_without_a_card_ram_decides(self) -> None:
        assert rough(5 * GIB).where == "cpu"
        assert rough(24 * GIB).where == "no"

    def test_no_says_what_is_needed_and_what_can_be_had(self) -> None:
        fit = rough(40 * GIB, gpu(8 * GIB), host=HostMemory(16 * GIB, 8 * GIB, 8))
        assert fit.text == "about 41.50 GiB is needed; 7.16 GiB on CUDA0 and 7.38 GiB of RAM can be had"

    def test_unknown_memory_is_unknown_and_not_a_no(self) -> None:
        fit = rough(5 * GIB, host=HostMemory(None, None, None))
        assert (fit.where, fit.text) == (None, "how much memory is free is not known")

    def test_a_software_device_is_no_card(self) -> None:
        assert rough(5 * GIB, gpu(20 * GIB, backend="vulkan", software=True)).where == "cpu"

    def test_memory_that_is_shared_is_counted_once(self) -> None:
        apu = gpu(20 * GIB, backend="vulkan", integrated=True)
        assert rough(10 * GIB, apu, host=HostMemory(16 * GIB, 6 * GIB, 8)).where == "no"
        assert rough(10 * GIB, apu).where == "gpu"

    def test_zero_layers_asked_for_means_ram(self) -> None:
        fit = rough_fit(5 * GIB, 8_192, (gpu(24 * GIB),), RAM, PlanRequest(gpu_layers=0))
        assert fit.where == "cpu"

    @given(st.integers(1, 400 * GIB), st.integers(0, 96 * GIB), st.integers(0, 512 * GIB))
    def test_a_larger_machine_never_fits_less(self, weights: int, free: int, available: int) -> None:
        order: list[Where | None] = ["no", "cpu", "partly", "gpu"]
        small = rough(weights, gpu(free), host=HostMemory(None, available, 8)).where
        large = rough(weights, gpu(free + GIB), host=HostMemory(None, available + GIB, 8)).where
        assert order.index(large) >= order.index(small)


class TestAgainstWhatIsKnown:
    def test_the_estimate_agrees_with_the_plan_of_a_known_model(self) -> None:
        header = llama_like()
        weights = sum(tensor.n_bytes for tensor in header.tensors)
        for free in (24, 12, 8, 7, 5, 3):
            exact = fit_of(plan(header, gpu(free * GIB), host=HOST)).where
            assert rough(weights, machines.gpu(free * GIB), host=HOST).where == exact, free

    def test_cache_and_buffers_of_models_in_public_logs(self) -> None:
        """A model's need beyond its weights at the smallest chat plan, as the exact formulas have it."""
        off: dict[str, float] = {}
        over_large: list[float] = []
        for row in truth.rows():
            weights = int(truth.logged(row, "model_mib") * MIB)
            if weights < GIB // 2 or _without_groups(row):
                continue
            shape = truth.shape(row)
            kind = "f16" if shape.head_k % 32 else "q8_0"
            load = Load(ctx=4_096, slots=2, n_ubatch=512, kv_k=kind, kv_v=kind, n_outputs=2)
            exact = kv_bytes(shape, load) + state_bytes(shape, load) + gpu_compute(shape, load)
            share = (exact - _beside(weights, None)) / (weights + exact)
            off[row["model"]] = share
            if weights >= 3 * GIB:
                over_large.append(-share)
        short = {model for model, share in off.items() if share > 0.05}

        assert len(off) >= 40
        assert len(short) <= len(off) * 0.1, short
        assert max(over_large) < 0.2


def _without_groups(row: truth.Row) -> bool:
    """Models of 2023 and early 2024, each of whose heads has a cache of its own."""
    return row["arch"] in ("llama", "command-r", "phi3") and bool(row["n_head_kv"] == row["n_head"])
