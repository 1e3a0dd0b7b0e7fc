"""The door to the compute buffers: what the engine measured on header-only stubs, and the edges."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from appliance.gguf import Header, MetaValue, TensorInfo, shape_of
from appliance.planning import DeviceMemory, Load
from appliance.planning.memory.compute import ComputeModel
from appliance.planning.memory.placement import Placement, place
from appliance.planning.memory.weights import weights_of
from appliance.units import MIB
from tests.planning.machines import llama_like

_TABLE: dict[str, Any] = json.loads((Path(__file__).parent.parent / "data" / "engine_stubs.json").read_text())
_BITS = {"q4_0": 4.5, "q4_K": 4.5, "q6_K": 6.5625, "f16": 16.0, "f32": 32.0}
_N_LAYER, _N_EMBD, _N_VOCAB = 8, 1_024, 8_192
_VULKAN = DeviceMemory("Vulkan0", "llvmpipe", "vulkan", None, None, max_tensor=128 * MIB)
_CUDA = DeviceMemory("CUDA0", "card", "cuda", None, None)


def _header(model: dict[str, Any]) -> Header:
    arch, head, e = model["arch"], model["head"], _N_EMBD
    query, key = model["n_head"] * head, model["n_head_kv"] * head
    metadata: dict[str, MetaValue] = {
        "general.architecture": arch,
        f"{arch}.block_count": _N_LAYER,
        f"{arch}.embedding_length": e,
        f"{arch}.feed_forward_length": model["n_ff"],
        f"{arch}.attention.head_count": model["n_head"],
        f"{arch}.attention.head_count_kv": model["n_head_kv"],
        f"{arch}.attention.key_length": head,
        f"{arch}.attention.value_length": head,
        f"{arch}.context_length": 131_072,
    }
    quant, fine = model["quant"], model["fine"]
    parts = {"attn_norm": (e, "f32"), "ffn_norm": (e, "f32"), "attn_q": (e * query, quant)}
    parts |= {"attn_k": (e * key, quant), "attn_v": (e * key, quant), "attn_output": (query * e, quant)}
    if model.get("qk_norm"):
        parts |= {"attn_q_norm": (head, "f32"), "attn_k_norm": (head, "f32")}
    if model.get("bias"):
        parts |= {"attn_q.bias": (query, "f32"), "attn_k.bias": (key, "f32"), "attn_v.bias": (key, "f32")}
    suffix, inner = "", e * model["n_ff"]
    if "experts" in model:
        n, used, width = model["experts"]
        metadata |= {f"{arch}.expert_count": n, f"{arch}.expert_used_count": used}
        metadata[f"{arch}.expert_feed_forward_length"] = width
        parts["ffn_gate_inp"] = e * n, "f32"
        suffix, inner = "_exps", e * width * n
    for role, kind in (("gate", quant), ("up", quant), ("down", fine)):
        parts[f"ffn_{role}{suffix}"] = inner, kind
    tensors = [_tensor("token_embd", e * _N_VOCAB, quant), _tensor("output", e * _N_VOCAB, quant)]
    for layer in range(_N_LAYER):
        tensors += [_tensor(f"blk.{layer}.{role}", n, kind) for role, (n, kind) in parts.items()]
    return Header(3, metadata, tuple(tensors), 0, None)


def _tensor(name: str, elements: int, kind: str) -> TensorInfo:
    full = name if name.endswith(".bias") else f"{name}.weight"
    return TensorInfo(full, (_N_EMBD, max(1, elements // _N_EMBD)), kind, 0, int(elements * _BITS[kind] / 8))


def _model(header: Header) -> ComputeModel:
    shape = shape_of(header)
    return ComputeModel(shape, weights_of(header, shape))


def _load(ctx: int = 8_192, **further: Any) -> Load:
    settings = {"slots": 1, "n_ubatch": 512, "kv_k": "f16", "kv_v": "f16", "n_outputs": 1, **further}
    return Load(ctx, **settings)


def _name(row: dict[str, Any]) -> str:
    return (
        f"{row['model']}-ngl{row['gpu_layers']}-c{row['ctx']}x{row['slots']}-{row['kv']}-moe{row['cpu_moe']}"
    )


@pytest.mark.parametrize("row", _TABLE["rows"], ids=_name)
def test_shapes_that_the_engine_measured(row: dict[str, Any]) -> None:
    model = _model(_header(_TABLE["models"][row["model"]]))
    load = _load(
        row["ctx"], slots=row["slots"], n_ubatch=row["n_ubatch"], kv_k=row["kv"], kv_v=row["kv"],
        n_outputs=row["slots"],
    )  # fmt: skip
    found = model.of(load, place(_N_LAYER, row["gpu_layers"], [1], row["cpu_moe"]), [_VULKAN])

    if row["device"] is None:
        assert found.devices == (0,)
    else:
        assert 0.98 <= found.devices[0] / MIB / row["device"] <= 1.15
    assert 0.98 <= found.host / MIB / row["host"] <= 1.02


def test_nearly_all_of_these_shapes_are_exact() -> None:
    exact = 0
    for row in _TABLE["rows"]:
        model = _model(_header(_TABLE["models"][row["model"]]))
        load = _load(
            row["ctx"], slots=row["slots"], n_ubatch=row["n_ubatch"], kv_k=row["kv"], kv_v=row["kv"],
            n_outputs=row["slots"],
        )  # fmt: skip
        found = model.of(load, place(_N_LAYER, row["gpu_layers"], [1], row["cpu_moe"]), [_VULKAN])
        value, said = (
            (found.host, row["host"]) if row["device"] is None else (found.devices[0], row["device"])
        )
        exact += abs(value / MIB - said) <= 0.02

    assert exact / len(_TABLE["rows"]) >= 0.9


DENSE = llama_like(n_layer=32)
MOE = _header(_TABLE["models"]["moe-wide"])


def test_without_devices_all_is_in_ram() -> None:
    model = _model(DENSE)
    none, unused = model.of(_load(), place(32, 33, []), []), model.of(_load(), place(32, 0, [1]), [_CUDA])

    assert none.devices == ()
    assert unused.devices == (0,)
    assert none.host == unused.host > 100 * MIB


def test_a_device_without_layers_works_only_for_what_lies_in_ram() -> None:
    model, load = _model(DENSE), _load()
    second_only = Placement((None,) * 16 + (1,) * 16, 1, n_devices=2)

    first, second = model.of(load, second_only, [_CUDA, _CUDA]).devices
    assert first > second > 0
    assert model.of(load, Placement((1,) * 32, 1, n_devices=2), [_CUDA, _CUDA]).devices[0] == 0
    assert model.device(0, load, Placement((None,) * 32, None), _CUDA) > 100 * MIB


def test_several_devices_hold_further_copies_of_the_masks() -> None:
    model, load = _model(DENSE), _load(65_536)
    one = model.of(load, place(32, 33, [1]), [_CUDA])
    two = model.of(load, place(32, 33, [1, 1]), [_CUDA, _CUDA])
    masks, inputs = 2 * 512 * 65_536, 4 * 512 * 4_096

    assert min(two.devices) - max(one.devices) == 3 * (masks + inputs)
    assert two.host - one.host == 3 * masks


def test_a_part_in_ram_needs_more_than_all_on_the_device() -> None:
    model, load = _model(DENSE), _load(32_768)
    full = model.of(load, place(32, 33, [1]), [_CUDA]).devices[0]
    partly = [model.of(load, place(32, layers, [1]), [_CUDA]).devices[0] for layers in (1, 16, 32)]

    assert min(partly) > full + 32_768 * 2 * 1_024 * 2  # at least one block's keys and values


def test_experts_in_ram_bring_at_least_one_of_their_tensors_to_the_device() -> None:
    model, load = _model(MOE), _load(4_096)
    here = model.of(load, place(8, 9, [1]), [_CUDA]).devices[0]
    away = model.of(load, place(8, 9, [1], 8), [_CUDA]).devices[0]

    assert away >= here + max(max(sizes) for sizes in model.weights.experts) * 0.9


def test_cuda_turns_a_quantised_cache_into_16_bit_for_its_attention() -> None:
    model = _model(DENSE)
    placed = place(32, 33, [1])
    quantised = _load(65_536, kv_k="q8_0", kv_v="q8_0")
    copies = 65_536 * 2 * 1_024 * 2

    more = model.of(quantised, placed, [_CUDA]).devices[0] - model.of(quantised, placed, [_VULKAN]).devices[0]
    # what is live beside them is not the same as at the peak without
    assert 0.75 * copies < more < copies


def test_the_logits_of_whole_batches_count_on_the_device_of_the_output() -> None:
    model = _model(DENSE)
    whole = _load(n_outputs=512)
    logits = 4 * 512 * 151_936
    refusing = DeviceMemory("Vulkan0", "card", "vulkan", None, None, max_tensor=MIB)

    assert model.of(whole, place(32, 33, [1]), [_CUDA]).devices[0] >= logits
    refused = model.of(whole, place(32, 33, [1]), [refusing])
    assert refused.devices[0] < logits <= refused.host


def test_without_flash_attention_the_scores_of_all_heads_are_live() -> None:
    model = _model(DENSE)
    found = model.of(_load(4_096, flash_attn=False), place(32, 33, [1]), [_CUDA])

    assert found.devices[0] >= 4 * 4_096 * 512 * 32


def test_a_known_load_costs_next_to_nothing() -> None:
    model = _model(llama_like(n_layer=100))
    placed, load = place(100, 50, [1]), _load()
    model.of(load, placed, [_CUDA])

    took = []
    for _ in range(50):
        start = perf_counter()
        model.of(load, placed, [_CUDA])
        took.append(perf_counter() - start)
    assert min(took) < 100e-6
