"""Decode speed by rule, against runs that others published and that the references tell of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.gguf import read_header, shape_of
from appliance.planning.memory.cache import Load
from appliance.planning.memory.placement import place
from appliance.planning.memory.weights import weights_of
from appliance.planning.speed.bandwidth import device_bandwidth, host_bandwidth
from appliance.planning.speed.reads import CPU_LAYER_S, Read, ReadModel, gpu_layer_s
from appliance.planning.speed.rule import ONE_PLACE, how_of, place_of, tokens_per_second
from appliance.planning.values import HostMemory
from tests.planning.machines import GIB, gpu, llama_like

BITS_4 = 4.5 / 8
LLAMA_7B = round(3.56 * GIB - 32_000 * 4_096 * BITS_4)
"""Bytes that a token of Llama 7B Q4_0 reads: its file without the input embedding."""
LLAMA_8B_Q4_0 = round(4.33 * GIB - 128_256 * 4_096 * BITS_4)
LLAMA_8B_Q4_K = round(4.58 * GIB - 128_256 * 4_096 * BITS_4)
LLAMA_8B_Q8 = round(7.95 * GIB - 128_256 * 4_096 * 8.5 / 8)
QWEN3_8B = round(5.03e9 - 151_936 * 4_096 * BITS_4)


def card(description: str, backend: str, n_bytes: int, layers: int) -> Read:
    bandwidth = device_bandwidth(description, backend)
    assert bandwidth is not None
    return Read(n_bytes, bandwidth, False, layers + 1, True, gpu_layer_s(backend))


@pytest.mark.parametrize(
    ("description", "backend", "n_bytes", "layers", "measured"),
    [
        # llama-bench tg128 of issue 26663 of ggml-org/llama.cpp (b10298): Qwen3 Q4_K_M, the smaller ones tied
        ("AMD Radeon RX 9070 XT", "vulkan", 397_000_000, 28, 571.9),
        ("AMD Radeon RX 9070 XT", "vulkan", 1_107_000_000, 28, 321.8),
        ("AMD Radeon RX 9070 XT", "vulkan", 2_497_000_000, 36, 174.5),
        ("AMD Radeon RX 9070 XT", "vulkan", QWEN3_8B, 36, 104.3),
        ("AMD Radeon RX 9070 XT", "rocm", 397_000_000, 28, 292.2),
        ("AMD Radeon RX 9070 XT", "rocm", 1_107_000_000, 28, 221.7),
        ("AMD Radeon RX 9070 XT", "rocm", 2_497_000_000, 36, 129.2),
        ("AMD Radeon RX 9070 XT", "rocm", QWEN3_8B, 36, 91.1),
        # its pull request 21024
        ("NVIDIA GeForce RTX 3090", "vulkan", LLAMA_8B_Q4_0, 32, 146.7),
        ("NVIDIA GeForce RTX 3090", "vulkan", LLAMA_8B_Q8, 32, 95.05),
        # its list of runs with CUDA (August 2025), and one of another project
        ("NVIDIA GeForce RTX 5090", "cuda", LLAMA_7B, 32, 290.0),
        ("NVIDIA GeForce RTX 5090", "cuda", QWEN3_8B, 36, 221.7),
        # its list of runs on Apple chips (November 2023), and runs on two other Macs
        ("Apple M2 Ultra", "metal", LLAMA_7B, 32, 94.27),
        ("Apple M4", "metal", LLAMA_8B_Q4_K, 32, 20.87),
        ("Apple M1 Max", "metal", LLAMA_8B_Q4_K, 32, 46.2),
    ],
)
def test_published_runs_are_met_within_a_fifth(
    description: str, backend: str, n_bytes: int, layers: int, measured: float
) -> None:
    found = tokens_per_second([card(description, backend, n_bytes, layers)])
    assert found == pytest.approx(measured, rel=0.2)


def test_large_models_use_more_of_a_cards_bandwidth_than_small_ones() -> None:
    """As llama.cpp does: 60 to 75 % of the data sheet with an 8B model, less with a small one."""
    used = []
    for n_bytes, layers in ((100_000_000, 30), (1_107_000_000, 28), (LLAMA_8B_Q4_0, 32)):
        read = card("NVIDIA GeForce RTX 3090", "cuda", n_bytes, layers)
        speed = tokens_per_second([read])
        assert speed is not None
        used.append(speed * n_bytes / 936e9)
    assert used == sorted(used)
    assert used[0] < 0.15
    assert 0.6 < used[-1] < 0.75


LOAD = Load(ctx=4_096, slots=1, n_ubatch=512, kv_k="f16", kv_v="f16", n_outputs=1)


@pytest.mark.parametrize(("threads", "measured"), [(4, 12.65), (8, 18.27)])
def test_a_desktops_cores_are_not_overestimated(threads: int, measured: float) -> None:
    """Llama 7B Q4_0 on a 13900K (issue 34): what a slower desktop does, so it may be less, never more."""
    found = host_bandwidth("13th Gen Intel(R) Core(TM) i9-13900K", threads)
    assert found is not None
    speed = tokens_per_second([Read(LLAMA_7B, found[0], False, 33, False)])
    assert speed is not None
    assert measured / 2 < speed <= measured


def test_smollm2_on_two_cores_comes_near_to_what_was_measured(smollm2_path: Path) -> None:
    """68 tokens/s with the xllamacpp wheel on two virtual cores (Q4_1), one client, short context."""
    header = read_header(smollm2_path)
    shape = shape_of(header)
    found = host_bandwidth("AMD EPYC", 2)
    assert found is not None
    ram = HostMemory(8 * GIB, 6 * GIB, 2, bandwidth=found[0])
    reads = ReadModel(shape, weights_of(header, shape)).of(LOAD, place(30, 0, []), [], ram, 100)
    assert tokens_per_second(reads) == pytest.approx(68, rel=0.25)


def test_a_part_in_ram_costs_most_of_the_time() -> None:
    header = llama_like()
    shape = shape_of(header)
    made = ReadModel(shape, weights_of(header, shape))
    ram, there = HostMemory(1, 1, 8, bandwidth=40e9), gpu(1, bandwidth=1_008e9)
    speeds = [tokens_per_second(made.of(LOAD, place(32, n, [1]), [there], ram, 0)) for n in (0, 16, 32, 33)]
    known = [speed for speed in speeds if speed is not None]
    assert known == sorted(known)
    assert known[0] < 10
    assert known[3] > 100
    assert known[1] < 2.5 * known[0], "half of the layers on the card less than doubles it, and some"


def test_an_unknown_bandwidth_gives_no_speed() -> None:
    known, unknown = Read(10**9, 100e9, False, 10, True), Read(1, None, False, 1, False)
    assert tokens_per_second([known, unknown]) is None
    assert tokens_per_second([unknown, known]) is None


def test_a_place_that_is_not_read_may_be_unknown() -> None:
    known, idle = Read(10**9, 100e9, False, 10, True), Read(0, None, False, 0, False)
    assert tokens_per_second([known, idle]) == tokens_per_second([known])
    assert how_of([known, idle]) == "table"


def test_nothing_to_read_is_no_speed() -> None:
    assert tokens_per_second([]) is None
    assert tokens_per_second([Read(0, 100e9, False, 0, True)]) is None


@pytest.mark.parametrize("bandwidth", [0.0, -1.0])
def test_a_bandwidth_that_is_none_gives_no_speed(bandwidth: float) -> None:
    assert tokens_per_second([Read(10**9, bandwidth, False, 1, True)]) is None


def test_the_least_certain_source_is_named() -> None:
    table, seen = Read(1, 1e9, False, 1, True), Read(1, 1e9, True, 1, True)
    rule, seen_ram = Read(1, 1e9, False, 1, False), Read(1, 1e9, True, 1, False)
    assert how_of([seen, seen_ram]) == "seen"
    assert how_of([seen, table, seen_ram]) == "table"
    assert how_of([seen, table, rule]) == "rule"


def test_a_seen_speed_is_met_again() -> None:
    """What is learned from a speed predicts that speed, on the card and in RAM."""
    for on_gpu, speed in ((True, 63.0), (False, 4.2)):
        layer_s = gpu_layer_s("cuda") if on_gpu else CPU_LAYER_S
        reads = [Read(4_000_000_000, 300e9, False, 33, on_gpu, layer_s), Read(0, None, False, 0, False)]
        found = place_of(reads, speed)
        assert found is not None
        index, bandwidth = found
        assert index == 0
        learned = [replace(reads[0], bandwidth=bandwidth, seen=True), reads[1]]
        assert tokens_per_second(learned) == pytest.approx(speed)
        assert how_of(learned) == "seen"


def test_a_speed_of_two_places_tells_about_neither() -> None:
    def split(share: float) -> list[Read]:
        there = round(share * 4_000_000_000)
        return [Read(there, 300e9, False, 30, True), Read(4_000_000_000 - there, 40e9, False, 3, False)]

    assert place_of(split(0.5), 20.0) is None
    assert place_of(split(ONE_PLACE - 0.01), 20.0) is None
    found = place_of(split(ONE_PLACE + 0.01), 20.0)
    assert found is not None
    assert found[0] == 0


def test_a_tiny_model_on_a_card_tells_nothing_about_its_memory() -> None:
    """30 blocks of 40 us are 1.2 of 1.5 ms: the rest is no measurement of bandwidth."""
    assert place_of([Read(100_000_000, 936e9, False, 31, True, gpu_layer_s("cuda"))], 1 / 1.5e-3) is None


def test_a_speed_of_nothing_or_of_no_reads_tells_nothing() -> None:
    assert place_of([], 10.0) is None
    assert place_of([Read(10**9, 1e9, False, 1, True)], 0.0) is None


sizes = st.integers(0, 1 << 40)
layers = st.integers(0, 200)
bandwidths = st.floats(1e8, 1e13)


@st.composite
def known_reads(draw: st.DrawFn) -> list[Read]:
    """One to four places with known bandwidths, at least one of them read."""
    reads = [
        Read(draw(sizes), draw(bandwidths), draw(st.booleans()), draw(layers), draw(st.booleans()))
        for _ in range(draw(st.integers(1, 4)))
    ]
    return [replace(reads[0], n_bytes=draw(st.integers(1, 1 << 40))), *reads[1:]]


@given(known_reads(), st.floats(1, 100), st.integers(0, 3))
def test_more_bandwidth_is_never_slower(reads: list[Read], factor: float, which: int) -> None:
    index = which % len(reads)
    bandwidth = reads[index].bandwidth
    assert bandwidth is not None
    faster = [*reads]
    faster[index] = replace(reads[index], bandwidth=bandwidth * factor)
    before, after = tokens_per_second(reads), tokens_per_second(faster)
    assert before is not None
    assert after is not None
    assert after >= before > 0


@given(known_reads(), st.integers(0, 3))
def test_unknown_is_never_zero(reads: list[Read], which: int) -> None:
    index = which % len(reads)
    reads[index] = replace(reads[index], bandwidth=None)
    found = tokens_per_second(reads)
    assert found is None if reads[index].n_bytes else found is None or found > 0


@given(
    ctx=st.integers(1, 64).map(lambda n: 256 * n),
    filled=st.tuples(st.integers(0, 20_000), st.integers(0, 20_000)).map(sorted),
    n_swa=st.sampled_from([0, 128, 1_024]),
    gpu_layers=st.integers(0, 13),
    kv_type=st.sampled_from(["f16", "q8_0", "q4_0"]),
)
def test_more_filled_context_is_never_faster(
    ctx: int, filled: list[int], n_swa: int, gpu_layers: int, kv_type: str
) -> None:
    header = llama_like(arch="gemma3", n_layer=12, further={"attention.sliding_window": n_swa})
    shape = shape_of(header)
    made = ReadModel(shape, weights_of(header, shape))
    load = replace(LOAD, ctx=ctx, kv_k=kv_type, kv_v=kv_type)
    there, ram = gpu(1, bandwidth=300e9), HostMemory(1, 1, 8, bandwidth=40e9)
    less, more = (
        tokens_per_second(made.of(load, place(12, gpu_layers, [1]), [there], ram, n)) for n in filled
    )
    assert less is not None
    assert more is not None
    assert less >= more > 0


@given(known_reads(), st.floats(0.01, 10_000))
def test_a_learned_bandwidth_is_positive_and_predicts_no_faster_than_seen(
    reads: list[Read], speed: float
) -> None:
    found = place_of(reads, speed)
    if found is None:
        return
    index, bandwidth = found
    assert bandwidth > 0
    alone = [
        replace(read, bandwidth=bandwidth, seen=True) if i == index else replace(read, n_bytes=0)
        for i, read in enumerate(reads)
    ]
    again = tokens_per_second(alone)
    assert again is not None
    assert again == pytest.approx(speed, rel=1.5 * (1 - ONE_PLACE))
