"""Metadata becomes dimensions by llama.cpp's rules."""

from __future__ import annotations

import pytest

from appliance.errors import GgufError
from appliance.gguf import ModelShape, read_header_bytes, shape_of
from tests.gguf.writer import STRING, entry, gguf, model

BASE: dict[str, object] = {
    "block_count": 12, "embedding_length": 512, "attention.head_count": 8, "attention.head_count_kv": 2,
    "feed_forward_length": 1024, "context_length": 4096,
}  # fmt: skip


def shape(arch: str, **values: object) -> ModelShape:
    keys = {key.replace("__", "."): value for key, value in values.items()}
    return shape_of(read_header_bytes(model(arch, {**BASE, **keys})))


def full_layers(found: ModelShape) -> list[int]:
    return [il for il in range(found.n_layer) if found.cache_layers[il] and not found.swa_layers[il]]


@pytest.mark.parametrize(
    ("arch", "full"),
    [
        ("gemma2", [1, 3, 5, 7, 9, 11]),
        ("gpt-oss", [1, 3, 5, 7, 9, 11]),
        ("gemma3", [5, 11]),
        ("cohere2", [3, 7, 11]),
        ("gemma3n", [4, 9]),
        ("smallthinker", [0, 4, 8]),  # its full block is the first of each period
        ("llama", list(range(12))),  # names a window, and the engine has none for it
        ("phi3", list(range(12))),  # the engine ignores the window
    ],
)
def test_built_in_window_patterns(arch: str, full: list[int]) -> None:
    assert full_layers(shape(arch, attention__sliding_window=1024)) == full


def test_a_listed_pattern_wins() -> None:
    listed = [True] * 11 + [False]
    found = shape("gemma4", attention__sliding_window=512, attention__sliding_window_pattern=listed)

    assert full_layers(found) == [11]


def test_gemma4_shares_the_caches_of_its_last_blocks() -> None:
    found = shape(
        "gemma4",
        attention__sliding_window=512,
        attention__sliding_window_pattern=[True, True, True, False] * 3,
        attention__shared_kv_layers=5,
        attention__key_length=512,
        attention__key_length_swa=256,
        attention__value_length=512,
        attention__value_length_swa=256,
    )

    assert found.cache_layers == (True,) * 7 + (False,) * 5
    assert found.kv_row(0) == (512, 512)  # 2 heads of 256
    assert found.kv_row(3) == (1024, 1024)
    assert found.kv_row(11) == (0, 0)


def test_windows_disappear_without_a_size() -> None:
    assert not any(shape("gemma3").swa_layers)
    assert any(shape("gemma2").swa_layers)  # its window is built in
    assert shape("gemma2").n_swa == 4096


def test_hybrids_keep_state_in_all_but_every_fourth_block() -> None:
    found = shape(
        "qwen35",
        ssm__conv_kernel=4, ssm__inner_size=4096, ssm__state_size=128, ssm__group_count=16,
    )  # fmt: skip

    assert [il for il in range(12) if found.cache_layers[il]] == [3, 7, 11]
    assert sum(found.recurrent_layers) == 9
    assert found.state_floats * 4 * 24 == pytest.approx(50.25 * 2**20)  # Qwen3.5-9B has 24 such blocks


def test_mtp_blocks_count_as_layers_and_cache_nothing() -> None:
    found = shape("glm4moe", nextn_predict_layers=1)

    assert found.n_layer == 12
    assert found.cache_layers == (True,) * 11 + (False,)


def test_head_counts_may_differ_per_block() -> None:
    found = shape("lfm2", attention__head_count_kv=[0, 0, 8] * 4, shortconv__l_cache=3)

    assert [il for il in range(12) if found.cache_layers[il]] == [2, 5, 8, 11]
    assert found.recurrent_layers[:3] == (True, True, False)
    assert found.state_floats == 512 * 2


def test_falcon_h1_has_both_in_every_block() -> None:
    found = shape("falcon-h1", ssm__conv_kernel=4, ssm__inner_size=1024, ssm__state_size=64)

    assert all(found.cache_layers)
    assert all(found.recurrent_layers)


@pytest.mark.parametrize("arch", ["mamba", "rwkv7"])
def test_recurrent_models_have_no_cache(arch: str) -> None:
    found = shape(arch, wkv__head_size=64)

    assert not any(found.cache_layers)
    assert all(found.recurrent_layers)


def test_compressed_attention_caches_one_row() -> None:
    found = shape(
        "deepseek2",
        attention__head_count_kv=1, attention__key_length=576, attention__value_length=512,
        attention__key_length_mla=192, attention__value_length_mla=128,
    )  # fmt: skip

    assert found.kv_row(0) == (576, 0)


def test_encoders_have_no_cache() -> None:
    assert not any(shape("bert").cache_layers)


def test_an_unknown_architecture_gets_its_upper_bound() -> None:
    found = shape("brandnew", attention__sliding_window=128)

    assert not found.known
    assert full_layers(found) == list(range(12))


def test_heads_default_to_attention_heads_and_sizes_to_their_share() -> None:
    values = {k: v for k, v in BASE.items() if k != "attention.head_count_kv"}
    found = shape_of(read_header_bytes(model("llama", values)))

    assert found.n_head_kv == (8,) * 12
    assert (found.head_k, found.head_v) == (64, 64)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"block_count": 0}, "block_count"),
        ({"block_count": 5000}, "block_count"),
        ({"attention.head_count": [8] * 3}, "3 values for 12 blocks"),
        ({"embedding_length": 0}, "embedding_length"),
        ({"expert_count": 8, "expert_used_count": 9}, "9 experts per token are more than the 8"),
        ({"expert_count": 8, "expert_used_count": [2] * 11 + [9]}, "9 experts per token"),
        ({"expert_used_count": 2}, "2 experts per token are more than the 0"),
    ],
)
def test_impossible_dimensions_are_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(GgufError) as caught:
        shape_of(read_header_bytes(model("llama", {**BASE, **values})))

    assert words in str(caught.value)


@pytest.mark.parametrize("values", [{}, {"expert_used_count": 0}])
def test_experts_all_count_where_the_number_in_use_is_not_said(values: dict[str, object]) -> None:
    found = shape("qwen3moe", expert_count=64, **values)

    assert (found.n_expert, found.n_expert_used) == (64, 64)


@pytest.mark.parametrize(
    ("arch", "kind", "words"),
    [("clip", None, "projector"), ("clip", "mmproj", "projector"), ("llama", "adapter", "LoRA")],
)
def test_a_file_that_is_no_language_model_is_named(arch: str, kind: str | None, words: str) -> None:
    entries = [entry("general.architecture", STRING, arch)]
    if kind is not None:
        entries.append(entry("general.type", STRING, kind))
    with pytest.raises(GgufError, match="no language model") as caught:
        shape_of(read_header_bytes(gguf(entries)))

    assert words in (caught.value.cause or "")
    assert "block_count" not in str(caught.value)


def test_a_model_without_its_number_of_blocks_is_damaged() -> None:
    with pytest.raises(GgufError) as caught:
        shape_of(read_header_bytes(model("llama", {"embedding_length": 512})))

    assert "llama.block_count: it is damaged" in (caught.value.cause or "")
