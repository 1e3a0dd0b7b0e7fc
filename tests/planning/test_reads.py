"""What a token reads: every active byte once, at the place where it lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.gguf import Header, ModelShape, read_header, shape_of
from appliance.planning.memory.cache import Load
from appliance.planning.memory.placement import Placement, place
from appliance.planning.memory.weights import Weights, weights_of
from appliance.planning.speed.reads import Read, ReadModel, between
from appliance.planning.values import DeviceMemory, HostMemory
from tests.planning.machines import GIB, MIB, gpu, llama_like, moe_like

LOAD = Load(ctx=8_192, slots=2, n_ubatch=512, kv_k="f16", kv_v="f16", n_outputs=2)
RAM = HostMemory(32 * GIB, 24 * GIB, 8, bandwidth=40e9)
CARD = gpu(24 * GIB, bandwidth=936e9)


def model(header: Header) -> tuple[ModelShape, Weights]:
    shape = shape_of(header)
    return shape, weights_of(header, shape)


def bytes_read(
    header: Header, placement: Placement, *devices: DeviceMemory, filled: int = 0, load: Load = LOAD
) -> list[int]:
    """Of each device, then of RAM."""
    reads = ReadModel(*model(header)).of(load, placement, devices, RAM, filled)
    assert len(reads) == len(devices) + 1
    assert [read.on_gpu for read in reads] == [True] * len(devices) + [False]
    return [read.n_bytes for read in reads]


def test_an_empty_context_reads_all_weights_but_the_input_embedding() -> None:
    header = llama_like(n_layer=8)
    embedding = next(t.n_bytes for t in header.tensors if t.name == "token_embd.weight")
    everything = sum(t.n_bytes for t in header.tensors)
    assert bytes_read(header, place(8, 9, [1]), CARD) == [everything - embedding, 0]
    assert bytes_read(header, place(8, 0, [])) == [everything - embedding]


def test_a_tied_model_reads_its_embedding_as_output_matrix() -> None:
    header = llama_like(n_layer=8, tied=True)
    assert bytes_read(header, place(8, 9, [1]), CARD) == [sum(t.n_bytes for t in header.tensors), 0]


def test_what_a_card_refuses_is_read_from_ram() -> None:
    header = llama_like(n_layer=8)
    sizes = {t.name: t.n_bytes for t in header.tensors}
    limited = replace(CARD, max_tensor=sizes["output.weight"] - 1)
    there, in_ram = bytes_read(header, place(8, 9, [1]), limited)
    assert in_ram == sizes["output.weight"]
    assert there == sum(sizes.values()) - sizes["output.weight"] - sizes["token_embd.weight"]


def test_layers_are_read_where_they_lie() -> None:
    header = llama_like(n_layer=8)
    reads = ReadModel(*model(header)).of(LOAD, place(8, 5, [3, 2]), [CARD, CARD], RAM, 0)
    assert [read.layers for read in reads] == [3, 2, 4], "output head on the last card"
    block = sum(t.n_bytes for t in header.tensors if t.name.startswith("blk.0."))
    output = next(t.n_bytes for t in header.tensors if t.name == "output.weight")
    assert [read.n_bytes for read in reads] == [3 * block, block + output, 4 * block]


def test_of_routed_experts_only_the_chosen_ones_are_read() -> None:
    header = moe_like()  # 128 experts, 8 of them used
    sizes = {t.name: t.n_bytes for t in header.tensors}
    experts = sum(n for name, n in sizes.items() if "_exps" in name)
    dense = sum(sizes.values()) - experts - sizes["token_embd.weight"]
    n = shape_of(header).n_layer
    (there, in_ram) = bytes_read(header, place(n, n + 1, [1]), CARD)
    assert there == pytest.approx(dense + experts / 16, rel=1e-6)
    assert in_ram == 0
    assert 1.5e9 < there < 2.2e9, "a 30B-A3B reads about 3B weights of 4.8 bits"
    there, in_ram = bytes_read(header, place(n, n + 1, [1], n), CARD)
    assert there == dense
    assert in_ram == pytest.approx(experts / 16, rel=1e-6)


def test_a_block_whose_experts_are_in_ram_has_work_at_both_places() -> None:
    header = moe_like()
    n = shape_of(header).n_layer
    reads = ReadModel(*model(header)).of(LOAD, place(n, n + 1, [1], 10), [CARD], RAM, 0)
    assert [read.layers for read in reads] == [n + 1, 10]


def test_a_token_of_context_is_read_by_every_block() -> None:
    header = llama_like(n_layer=8, n_embd=4_096, n_head=32, n_head_kv=8)
    empty, filled = (bytes_read(header, place(8, 9, [1]), CARD, filled=n)[0] for n in (0, 1_000))
    assert filled - empty == 1_000 * 8 * 2 * (8 * 128) * 2, "K and V rows of 8 heads of 128, 2 bytes each"


@pytest.mark.parametrize(("kv_type", "per_32"), [("q8_0", 34), ("q4_0", 18)])
def test_a_quantised_cache_is_read_in_its_own_size(kv_type: str, per_32: int) -> None:
    header, load = llama_like(n_layer=8), replace(LOAD, kv_k=kv_type, kv_v=kv_type)
    empty, filled = (bytes_read(header, place(8, 0, []), filled=n, load=load)[0] for n in (0, 1_000))
    assert filled - empty == 1_000 * 8 * 2 * (8 * 128) * per_32 // 32


def test_no_more_is_read_than_the_context_holds() -> None:
    header = llama_like(n_layer=8)
    assert bytes_read(header, place(8, 0, []), filled=LOAD.ctx) == bytes_read(
        header, place(8, 0, []), filled=10 * LOAD.ctx
    )


def test_a_window_is_read_no_further_back_than_its_cache_goes() -> None:
    """Gemma 3: five of six blocks see 512 tokens; their cache has room for a batch beside them."""
    header = llama_like(arch="gemma3", n_layer=12, further={"attention.sliding_window": 512})
    shape = shape_of(header)
    assert shape.swa_layers.count(True) == 10
    row = 2 * sum(shape.kv_row(0))
    at = {n: bytes_read(header, place(12, 0, []), filled=n)[0] for n in (0, 400, 4_096, 8_192)}
    assert at[400] - at[0] == 12 * 400 * row
    assert at[8_192] - at[4_096] == 2 * 4_096 * row, "only the two blocks without a window read on"
    assert at[4_096] - at[0] == (2 * 4_096 + 10 * 1_024) * row


def test_a_recurrent_state_is_read_and_written_whatever_the_context() -> None:
    header = llama_like(n_layer=8)
    shape, weights = model(header)
    recurrent = replace(shape, recurrent_layers=(True,) * 8, cache_layers=(False,) * 8, state_floats=1_000)
    plain = bytes_read(header, place(8, 0, []))[0]
    for filled in (0, 4_096):
        (read,) = ReadModel(recurrent, weights).of(LOAD, place(8, 0, []), [], RAM, filled)
        assert read.n_bytes - plain == 8 * 2 * 4 * 1_000


def test_a_block_without_a_cache_of_its_own_reads_an_earlier_one() -> None:
    """Gemma 3n keeps 20 caches for its 30 or 35 blocks."""
    header = llama_like(arch="gemma3n", n_layer=30)
    shape = shape_of(header)
    assert shape.cache_layers.count(True) == 20
    empty, filled = (bytes_read(header, place(30, 0, []), filled=n)[0] for n in (0, 100))
    assert filled - empty == 30 * 100 * 2 * sum(shape.kv_row(0))


def test_prediction_heads_are_not_read_while_nobody_drafts_with_them() -> None:
    plain = llama_like(n_layer=8)
    with_head = llama_like(n_layer=9, further={"nextn_predict_layers": 1})
    assert bytes_read(with_head, place(9, 10, [1]), CARD) == bytes_read(plain, place(8, 9, [1]), CARD)


def test_the_real_smollm2_reads_nearly_its_whole_file(smollm2_path: Path) -> None:
    """Tied, so nothing of it is left out: 98,362,432 bytes with the header."""
    header = read_header(smollm2_path)
    assert 0.96 < bytes_read(header, place(30, 0, []))[0] / 98_362_432 < 1


def test_one_model_of_reads_serves_many_candidates() -> None:
    shape, weights = model(moe_like())
    made = ReadModel(shape, weights)
    n = shape.n_layer
    for load in (LOAD, replace(LOAD, kv_k="q8_0", kv_v="q8_0")):
        for layers, moe in ((0, 0), (20, 0), (n + 1, 7), (n + 1, n)):
            for card in (CARD, replace(CARD, max_tensor=100 * MIB)):
                at = place(n, layers, [1], moe)
                assert made.of(load, at, [card], RAM, 999) == ReadModel(shape, weights).of(
                    load, at, [card], RAM, 999
                )


def test_between_two_fillings_is_a_straight_line() -> None:
    empty, full = (Read(1_000, 1e9, False, 3, True),), (Read(3_000, 1e9, False, 3, True),)
    assert [between(empty, full, share)[0].n_bytes for share in (-1, 0, 0.25, 1, 7)] == [
        1_000, 1_000, 1_500, 3_000, 3_000,
    ]  # fmt: skip
