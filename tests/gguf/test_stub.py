"""Header-only stubs hold all that the engine asks of a file before it loads tensor data."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.errors import GgufError
from appliance.gguf import header_bytes, read_header, write_stub
from tests.gguf.writer import STRING, entry, gguf, tensor


def test_a_stub_has_the_size_of_the_model_and_takes_little_room(smollm2_path: Path, tmp_path: Path) -> None:
    stub = write_stub(smollm2_path, tmp_path / "stub.gguf")

    assert stub.stat().st_size == smollm2_path.stat().st_size
    assert stub.stat().st_blocks * 512 < 4 << 20
    assert read_header(stub) == read_header(smollm2_path)


def test_a_stub_holds_no_tensor_data(smollm2_path: Path, tmp_path: Path) -> None:
    header = read_header(smollm2_path)
    stub = write_stub(smollm2_path, tmp_path / "stub.gguf")

    with stub.open("rb") as file:
        assert file.read(header.data_offset) == header_bytes(smollm2_path)
        while chunk := file.read(8 << 20):
            assert not any(chunk)


def test_a_stub_from_downloaded_header_bytes(tmp_path: Path) -> None:
    raw = gguf([entry("general.architecture", STRING, "llama")], [tensor("a", (1024,), 0, 0)], data=4096)
    prefix = raw[:-4096]

    stub = write_stub(prefix + b"some data", tmp_path / "stub.gguf")
    assert stub.stat().st_size == len(raw)

    stub = write_stub(prefix, tmp_path / "stub.gguf", file_size=10_000)
    assert stub.stat().st_size == 10_000


def test_a_broken_model_gives_no_stub(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="not a GGUF"):
        write_stub(b"<html>" * 100, tmp_path / "stub.gguf")

    assert not (tmp_path / "stub.gguf").exists()
