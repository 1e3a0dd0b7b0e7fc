"""Header-only stubs hold all that the engine asks of a file before it loads tensor data."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.errors import GgufError
from appliance.gguf import StubPart, header_bytes, read_header, read_header_bytes, write_stub, write_stubs
from tests.gguf.writer import STRING, entry, gguf, tensor


def part_of(path: Path) -> StubPart:
    return StubPart(path.name, path, path.stat().st_size)


def test_a_stub_has_the_size_of_the_model_and_takes_little_room(smollm2_path: Path, tmp_path: Path) -> None:
    stub = write_stub(part_of(smollm2_path), tmp_path / "stub.gguf")

    assert stub.stat().st_size == smollm2_path.stat().st_size
    assert stub.stat().st_blocks * 512 < 4 << 20
    assert read_header(stub) == read_header(smollm2_path)


def test_a_stub_holds_no_tensor_data(smollm2_path: Path, tmp_path: Path) -> None:
    header = read_header(smollm2_path)
    stub = write_stub(part_of(smollm2_path), tmp_path / "stub.gguf")

    with stub.open("rb") as file:
        assert file.read(header.data_offset) == header_bytes(smollm2_path)
        while chunk := file.read(8 << 20):
            assert not any(chunk)


def test_a_stub_from_downloaded_header_bytes(tmp_path: Path) -> None:
    raw = gguf([entry("general.architecture", STRING, "llama")], [tensor("a", (1024,), 0, 0)], data=4096)
    prefix = raw[:-4096]

    stub = write_stub(StubPart("m.gguf", prefix + b"some data", len(raw)), tmp_path / "stub.gguf")

    assert stub.read_bytes() == raw


def test_a_header_whose_length_is_known_is_not_read_again(tmp_path: Path) -> None:
    raw = gguf([entry("general.architecture", STRING, "llama")], [tensor("a", (1024,), 0, 0)], data=4096)
    known = read_header_bytes(raw).data_offset
    file = tmp_path / "m.gguf"
    file.write_bytes(raw)

    sources: tuple[Path | bytes, ...] = (raw, file)
    for n, source in enumerate(sources):
        stub = write_stub(StubPart("m.gguf", source, len(raw), known), tmp_path / f"stub{n}.gguf")
        assert stub.read_bytes() == raw

    with pytest.raises(GgufError, match="shorter than its header"):
        write_stub(StubPart("m.gguf", file, len(raw), len(raw) + 1), tmp_path / "stub.gguf")


def test_stubs_of_a_set_have_the_names_that_engines_look_for(tmp_path: Path) -> None:
    raw = gguf([entry("general.architecture", STRING, "llama")], [tensor("a", (1024,), 0, 0)], data=4096)
    parts = [StubPart(name, raw, len(raw)) for name in ("one", "two", "three")]

    first = write_stubs(parts, tmp_path, "x")

    assert first.name == "x-00001-of-00003.gguf"
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"x-0000{n}-of-00003.gguf" for n in (1, 2, 3)]


def test_a_broken_model_gives_no_stub(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="not a GGUF"):
        write_stub(StubPart("m.gguf", b"<html>" * 100, 600), tmp_path / "stub.gguf")

    assert not (tmp_path / "stub.gguf").exists()
