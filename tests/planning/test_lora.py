"""Adapters lie beside what they change, and models that take a text at once get a batch for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appliance.errors import GgufError
from appliance.gguf import Header, MetaValue, TensorInfo
from appliance.planning import Lora, Plan
from appliance.planning.memory.lora import lora_of
from tests.planning.machines import GIB, MIB, codes, flag, gpu, llama_like, moe_like, plan

MODEL = llama_like()
RANK = 64


def adapter(model: Header, *names: str, arch: str | None = None, **metadata: MetaValue) -> Header:
    """A header of an adapter for these matrices of the model, in 16 bits."""
    shapes = {tensor.name: tensor.shape for tensor in model.tensors}
    rows = []
    for name in names:
        width, height = shapes.get(name, (4_096, 4_096))
        rows += [(f"{name}.lora_a", (width, RANK)), (f"{name}.lora_b", (RANK, height))]
    tensors = tuple(TensorInfo(name, shape, "F16", 0, 2 * shape[0] * shape[1]) for name, shape in rows)
    known = {"general.type": "adapter", "adapter.type": "lora", "general.architecture": arch or model.arch}
    return Header(3, {**known, **metadata}, tensors, 4_096, None)


def every_block(model: Header, part: str, blocks: int = 32) -> Lora:
    names = [f"blk.{il}.{part}.weight" for il in range(blocks)]
    return lora_of(adapter(model, *names), model, "a.gguf", scale=0.5)


def model_bytes(found: Plan) -> list[int]:
    return [place.model for place in (*found.devices, found.host)]


def test_with_all_layers_on_a_card_the_adapter_is_there_too() -> None:
    lora = every_block(MODEL, "ffn_down")
    assert lora.n_bytes == 32 * 2 * RANK * (4_096 + 12_288)
    without, with_it = plan(MODEL, gpu(24 * GIB)), plan(MODEL, gpu(24 * GIB), adapters=(lora,))
    assert model_bytes(with_it)[0] - model_bytes(without)[0] == lora.n_bytes
    assert model_bytes(with_it)[1] == model_bytes(without)[1]
    assert with_it.devices[0].beside.model == lora.n_bytes  # the engine's own table does not have it
    assert [(one.name, one.scale, one.n_bytes) for one in with_it.adapters] == [("a.gguf", 0.5, lora.n_bytes)]
    assert "adapter" in codes(with_it)


def test_on_the_cpu_it_is_in_ram_and_shared_out_it_follows_its_blocks() -> None:
    lora = every_block(MODEL, "attn_q")
    in_ram, plain = plan(MODEL, adapters=(lora,)), plan(MODEL)
    assert in_ram.host.model - plain.host.model == lora.n_bytes
    request: dict[str, Any] = {"gpu_layers": 17, "ctx": 2_048, "parallel": 1, "kv_type": "f16"}
    half = plan(MODEL, gpu(24 * GIB), adapters=(lora,), **request)
    without = plan(MODEL, gpu(24 * GIB), **request)
    more = [a - b for a, b in zip(model_bytes(half), model_bytes(without), strict=True)]
    assert more == [
        lora.n_bytes // 2,
        lora.n_bytes // 2,
    ]  # 16 of 32 blocks: the output head is the 17th layer


def test_two_cards_share_it_as_they_share_the_blocks() -> None:
    lora = every_block(MODEL, "ffn_up")
    cards = gpu(5 * GIB), gpu(5 * GIB, name="CUDA1")
    found = plan(MODEL, *cards, adapters=(lora,), ctx=4_096, parallel=1)
    held = [device.beside.model for device in found.devices]
    assert len(held) == 2
    assert sum(held) == lora.n_bytes
    assert all(held)


def test_experts_in_ram_have_their_adapters_there() -> None:
    model = moe_like()
    names = [f"blk.{il}.ffn_up_exps.weight" for il in range(48)]
    lora = lora_of(adapter(model, *names), model, "a")
    request: dict[str, Any] = {"ctx": 4_096, "parallel": 1, "cpu_moe": 48}
    found = plan(model, gpu(24 * GIB), adapters=(lora,), **request)
    assert found.devices[0].beside.model == 0
    assert found.host.beside.model == lora.n_bytes


def test_an_adapter_that_takes_the_last_room_costs_layers_and_never_more_than_there_is() -> None:
    big = replace(every_block(MODEL, "ffn_up"), blocks=(40 * MIB,) * 32)
    card = gpu(7 * GIB)
    with_it = plan(MODEL, card, adapters=(big,), ctx=8_192, parallel=1, kv_type="f16")
    assert with_it.fits
    assert (with_it.devices[0].spare or 0) >= 0
    assert with_it.gpu_layers < plan(MODEL, card, ctx=8_192, parallel=1, kv_type="f16").gpu_layers


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (adapter(MODEL, "blk.0.attn_q.weight", arch="llama"), "made for llama, and the model is qwen3"),
        (adapter(MODEL, "blk.99.attn_q.weight"), "the model has no blk.99.attn_q.weight"),
        (adapter(llama_like(n_ff=8_192), "blk.0.ffn_up.weight"), "the model has no blk.0.ffn_up.weight"),
        (adapter(MODEL, "blk.0.attn_q.weight", **{"adapter.type": "control"}), "its header calls it control"),
        (adapter(MODEL, "blk.0.attn_q.weight", **{"general.type": "model"}), "its header calls it model"),
        (MODEL, "it is not called one"),
        (adapter(MODEL), "no tensor of an adapter"),
    ],
)
def test_what_does_not_belong_to_the_model_is_refused_with_why(header: Header, why: str) -> None:
    with pytest.raises(GgufError) as caught:
        lora_of(header, MODEL, "a.gguf")
    assert "a.gguf" in caught.value.message
    assert why in (caught.value.cause or "")


def test_the_input_embedding_is_turned_around_and_stays_in_ram() -> None:
    vocabulary = MODEL.tensors[0].shape[1]
    rows = [("token_embd.weight.lora_a", (RANK, vocabulary)), ("token_embd.weight.lora_b", (RANK, 4_096))]
    tensors = tuple(TensorInfo(name, shape, "F16", 0, 2 * shape[0] * shape[1]) for name, shape in rows)
    lora = lora_of(replace(adapter(MODEL), tensors=tensors), MODEL, "a")
    found = plan(MODEL, gpu(24 * GIB), adapters=(lora,))
    assert (found.devices[0].beside.model, found.host.beside.model) == (0, lora.n_bytes)


class TestInOnePiece:
    def test_the_micro_batch_is_as_long_as_the_context(self) -> None:
        found = plan(MODEL, gpu(24 * GIB), embedding=True, in_one_piece=True, ctx=3_000, parallel=1)
        assert (found.ctx, found.n_ubatch, found.n_batch) == (3_072, 3_072, 3_072)
        assert (flag(found, "-b"), flag(found, "-ub")) == ("3072", "3072")

    def test_where_that_is_too_much_both_get_shorter(self) -> None:
        """The results of a whole batch are kept: 152k floats for each token."""
        found = plan(MODEL, gpu(9 * GIB), embedding=True, in_one_piece=True, parallel=1)
        assert found.fits
        assert found.n_ubatch == found.ctx < 8_192

    def test_a_chat_model_that_is_marked_for_it_keeps_its_micro_batch(self) -> None:
        found = plan(MODEL, gpu(24 * GIB), embedding=True, ctx=8_192, parallel=1)
        assert found.n_ubatch < 8_192
        assert found.n_batch == found.n_ubatch  # several texts of one batch go into one micro-batch
