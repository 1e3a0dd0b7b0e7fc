"""The two real models against numbers that are known from elsewhere (model cards, byte-for-byte checks)."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from appliance.gguf import ArrayInfo, Header, read_header, read_header_bytes, shape_of


def _parameters(header: Header) -> int:
    return sum(math.prod(tensor.shape) for tensor in header.tensors)


def test_smollm2_is_read_as_published(smollm2_path: Path) -> None:
    header = read_header(smollm2_path)
    shape = shape_of(header)

    assert (header.arch, header.version, header.file_size) == ("llama", 3, 98_362_432)
    assert _parameters(header) == 134_515_008
    assert (shape.n_layer, shape.n_embd, shape.n_vocab) == (30, 576, 49_152)
    assert set(shape.n_head) == {9}
    assert set(shape.n_head_kv) == {3}
    assert set(shape.n_ff) == {1_536}
    assert (shape.head_k, shape.head_v, shape.n_ctx_train) == (64, 64, 8_192)
    assert all(shape.cache_layers)
    assert not any(shape.swa_layers)


def test_gemma3_is_read_as_published(gemma3_path: Path) -> None:
    header = read_header(gemma3_path)
    shape = shape_of(header)

    assert (header.arch, header.file_size) == ("gemma3", 253_113_024)
    assert _parameters(header) == 268_098_176
    assert (shape.n_layer, shape.n_embd, shape.n_vocab) == (18, 640, 262_144)
    assert set(shape.n_head) == {4}
    assert set(shape.n_head_kv) == {1}
    assert (shape.head_k, shape.n_swa, shape.n_ctx_train) == (256, 512, 32_768)
    assert [il for il, swa in enumerate(shape.swa_layers) if not swa] == [5, 11, 17]


@pytest.mark.parametrize("fixture", ["smollm2_path", "gemma3_path"])
def test_tensor_data_ends_where_the_file_ends(fixture: str, request: pytest.FixtureRequest) -> None:
    header = read_header(request.getfixturevalue(fixture))

    last = max(header.tensors, key=lambda t: t.offset)
    assert header.data_offset % 32 == 0
    assert header.data_offset + last.offset + last.n_bytes == header.file_size


def test_vocabulary_is_counted_and_not_decoded(gemma3_path: Path) -> None:
    metadata = read_header(gemma3_path).metadata

    assert metadata["tokenizer.ggml.tokens"] == ArrayInfo("string", 262_144)
    assert metadata["tokenizer.ggml.scores"] == ArrayInfo("f32", 262_144)
    assert metadata["general.tags"] == ("gemma3", "gemma", "google", "text-generation")


def test_a_prefix_reads_like_the_file(smollm2_path: Path) -> None:
    from_file = read_header(smollm2_path)
    with smollm2_path.open("rb") as file:
        prefix = file.read(from_file.data_offset)

    assert read_header_bytes(prefix, from_file.file_size) == from_file
    assert read_header_bytes(prefix).file_size is None
