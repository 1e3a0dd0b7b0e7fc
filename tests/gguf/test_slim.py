"""A header without its vocabulary says the same of memory, in a hundredth of the bytes."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

from appliance.errors import GgufError
from appliance.gguf import (
    ArrayInfo,
    Refused,
    header_bytes,
    read_header,
    read_header_bytes,
    read_slim,
    shape_of,
    slim_of,
    write_stub,
)
from tests.gguf.test_remote import Ranges
from tests.gguf.writer import ARRAY, F32, STRING, U32, array, entry, gguf, tensor, text
from tests.web.server import Server, head

VOCABULARY = [
    entry("tokenizer.ggml.model", STRING, "gpt2"),
    array("tokenizer.ggml.tokens", STRING, ["a", "bb", "ccc"]),
    array("tokenizer.ggml.scores", F32, [0.0, 0.5, 1.0]),
    entry("tokenizer.ggml.bos_token_id", U32, 1),
    entry("tokenizer.chat_template", STRING, "{{ messages }}"),
]
ARCH = entry("general.architecture", STRING, "llama")
TABLE = [tensor("a", (64,), 0, 0), tensor("b", (64,), 0, 256)]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def written(folder: Path, raw: bytes) -> Path:
    file = folder / "m.gguf"
    file.write_bytes(raw)
    return file


@pytest.mark.parametrize("model", ["smollm2_path", "gemma3_path"])
def test_a_real_model_without_its_vocabulary_has_the_same_shape_and_tensors(
    model: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(model)
    whole, slim = read_header(path), read_slim(path)

    assert len(slim.prefix) < 20_000 < len(header_bytes(path)) // 50
    assert slim.header.tensors == whole.tensors
    assert shape_of(slim.header) == shape_of(whole)
    assert slim.n_file == path.stat().st_size


def test_what_a_person_or_a_draft_model_asks_about_stays(tmp_path: Path) -> None:
    slim = read_slim(written(tmp_path, gguf([ARCH, *VOCABULARY], TABLE, data=512)))

    assert slim.header.metadata == {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.chat_template": "{{ messages }}",
        "llama.vocab_size": 3,
    }
    assert read_header_bytes(slim.prefix).metadata["tokenizer.ggml.model"] == "no_vocab"


def test_a_stated_vocabulary_size_gives_way_to_the_real_one(tmp_path: Path) -> None:
    raw = gguf([ARCH, entry("llama.vocab_size", U32, 99), *VOCABULARY], TABLE, data=512)

    assert read_slim(written(tmp_path, raw)).header.metadata["llama.vocab_size"] == 3


def test_a_long_array_of_another_kind_stays_with_all_the_rest(tmp_path: Path) -> None:
    labels = text("llama.labels") + struct.pack("<IIQ", ARRAY, STRING, 2_000) + text("x") * 2_000
    raw = gguf([ARCH, labels, *VOCABULARY], TABLE, data=512)
    slim = read_slim(written(tmp_path, raw))

    assert slim.prefix == raw[:-512]
    assert slim.header.metadata["llama.labels"] == ArrayInfo("string", 2_000)


@pytest.mark.parametrize("entries", [[], [ARCH], VOCABULARY], ids=["nothing", "no vocabulary", "no name"])
def test_what_has_no_vocabulary_to_leave_out_stays_as_it_is(entries: list[bytes], tmp_path: Path) -> None:
    raw = gguf(entries, TABLE, data=512)

    assert read_slim(written(tmp_path, raw)).prefix == raw[:-512]


def test_a_wider_alignment_is_kept(tmp_path: Path) -> None:
    head_ = gguf([ARCH, entry("general.alignment", U32, 256), *VOCABULARY], TABLE)
    raw = head_ + bytes(-len(head_) % 256) + bytes(512)
    slim = read_slim(written(tmp_path, raw))

    assert len(slim.prefix) % 256 == 0
    assert slim.header.data_offset == len(slim.prefix)
    assert slim.header.tensors == read_header_bytes(raw).tensors


def test_its_stub_ends_where_the_last_tensor_ends(tmp_path: Path) -> None:
    slim = read_slim(written(tmp_path, gguf([ARCH, *VOCABULARY], TABLE, data=4096)))
    stub = write_stub(slim.part("m.gguf"), tmp_path / "stub.gguf")

    assert stub.stat().st_size == len(slim.prefix) + 512
    assert read_header(stub).tensors == slim.header.tensors


def test_what_was_kept_means_the_same_and_nothing_else_is_taken(smollm2_path: Path) -> None:
    slim = read_slim(smollm2_path)
    again = slim_of(slim.prefix)

    assert (again.header, again.prefix) == (slim.header, slim.prefix)
    for broken in (slim.prefix[:-32], slim.prefix + bytes(32), b"", b"<html>" * 100):
        with pytest.raises(GgufError):
            slim_of(broken)


def test_a_server_is_asked_for_each_byte_once(smollm2_path: Path) -> None:
    ranges = Ranges(smollm2_path)
    with Server(ranges) as server:
        slim = read_slim(f"{server.url}/m.gguf")

    assert slim == read_slim(smollm2_path)
    spans = [tuple(map(int, r.headers["range"][6:].split("-"))) for r in server.requests]
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))
    assert ranges.sent < 4 << 20


def test_a_server_without_ranges_is_read_up_to_the_data(tmp_path: Path) -> None:
    raw = gguf([ARCH, *VOCABULARY], TABLE, data=512)
    with Server(lambda _, conn: conn.sendall(head(Content_Length=len(raw)) + raw)) as server:
        slim = read_slim(f"{server.url}/m.gguf")

    assert slim == read_slim(written(tmp_path, raw))


def test_a_whole_header_with_a_gap_is_fetched_where_it_was_jumped_over(tmp_path: Path) -> None:
    numbers = text("llama.numbers") + struct.pack("<IIQ", ARRAY, U32, 500_000) + bytes(2_000_000)
    raw = gguf([ARCH, numbers, *VOCABULARY], TABLE, data=512)
    with Server(Ranges(raw)) as server:
        slim = read_slim(f"{server.url}/m.gguf")

    assert slim.prefix == raw[:-512]


def test_a_refusal_says_why_in_the_hubs_own_word() -> None:
    with (
        Server(
            lambda _, conn: conn.sendall(head("403 No", X_Error_Code="GatedRepo", Content_Length=0))
        ) as server,
        pytest.raises(Refused) as caught,
    ):
        read_slim(f"{server.url}/m.gguf")

    assert (caught.value.http_status, caught.value.said) == (403, "GatedRepo")
