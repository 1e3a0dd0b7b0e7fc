"""Broken and hostile headers end in a GgufError: quickly, in little memory, in words."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.errors import GgufError
from appliance.gguf import read_header, read_header_bytes, shape_of
from appliance.gguf.reader import read_source
from appliance.gguf.source import BytesSource
from tests.gguf.writer import ARRAY, BOOL, F32, STRING, U32, array, entry, gguf, tensor, text

_HUGE = (1 << 63) + 5
_ONE = entry("general.architecture", STRING, "llama")


def _raw_array(key: str, kind: int, count: int) -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, kind, count)


WHOLE = gguf(
    [_ONE, entry("a", F32, 0.5), array("b", STRING, ["x", "yz"]), array("c", STRING, ["x" * 5] * 1_100)],
    [tensor("t", (32, 2), 0, 0), tensor("u", (8,), 0, 256)],
    data=256 + 32,
)
CASES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not a GGUF"),
    "three bytes": (b"GGU", "not a GGUF"),
    "a web page": (b"<!DOCTYPE html><html>" + b" " * 200, "not a GGUF"),
    "only the magic": (b"GGUF", "cut off"),
    "version 1": (gguf(version=1), "version 1"),
    "version 4": (gguf(version=4), "unknown version 4"),
    "version 0": (gguf(version=0), "unknown version 0"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big endian"),
    "big endian magic": (b"FUGG" + struct.pack(">IQQ", 3, 0, 0), "big endian"),
    "huge number of keys": (gguf(n_keys=_HUGE), "metadata entries"),
    "more keys than bytes": (gguf(n_keys=8_000), "cut off"),
    "huge number of tensors": (gguf([_ONE], n_tensors=_HUGE), "tensors"),
    "more tensors than bytes": (gguf([_ONE], n_tensors=8_000), "cut off"),
    "huge key": (gguf([struct.pack("<Q", _HUGE) + b"x" * 64]), "can't be used"),
    "key twice": (gguf([_ONE, _ONE]), "twice"),
    "unknown type": (gguf([text("a") + struct.pack("<I", 99) + b"\0" * 32]), "unknown type 99"),
    "huge text": (gguf([text("a") + struct.pack("<IQ", STRING, _HUGE) + b"\0" * 32]), "cut off"),
    "nested array": (gguf([_raw_array("a", ARRAY, 1) + b"\0" * 64]), "array of arrays"),
    "array of unknown type": (gguf([_raw_array("a", 77, 1) + b"\0" * 64]), "unknown type 77"),
    "huge array": (gguf([_raw_array("a", U32, _HUGE) + b"\0" * 64]), "cut off"),
    "huge array of texts": (gguf([_raw_array("a", STRING, 1 << 61) + b"\0" * 64]), "cut off"),
    "alignment 0": (gguf([entry("general.alignment", U32, 0)]), "power of two"),
    "alignment 2**31": (gguf([entry("general.alignment", U32, 1 << 31)]), "power of two"),
    "alignment that moves the data": (
        gguf([_ONE, entry("general.alignment", U32, 4096)], [tensor("a", (8,), 0, 0)], data=32), "shorter"
    ),
    "alignment twice": (gguf([entry("general.alignment", U32, 32)] * 2), "twice"),
    "arrays in arrays": (
        gguf([text("a") + struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 2_000]), "array of arrays"
    ),
    "offset near 2**64": (gguf([_ONE], [tensor("a", (8,), 0, (1 << 64) - 32)], data=64), "shorter"),
    "sizes that wrap around": (
        gguf([_ONE], [tensor("a", (1 << 61,), 0, 0), tensor("b", (8,), 0, 0)], data=64), "overlap"
    ),
    "same place": (gguf([_ONE], [tensor("a", (8,), 0, 0), tensor("b", (8,), 0, 0)], data=64), "overlap"),
    "key of control characters": (gguf([entry("\x1b]0;x\x07", U32, 1)] * 2), "twice"),
    "alignment 24": (gguf([entry("general.alignment", U32, 24)]), "power of two"),
    "alignment as text": (gguf([entry("general.alignment", STRING, "32")]), "whole number"),
    "five dimensions": (gguf([_ONE], [tensor("a", (1,) * 5, 0, 0)], data=64), "5 dimensions"),
    "no dimension": (gguf([_ONE], [tensor("a", (), 0, 0)], data=64), "0 dimensions"),
    "empty side": (gguf([_ONE], [tensor("a", (32, 0), 0, 0)], data=64), "impossible shape"),
    "overflowing shape": (gguf([_ONE], [tensor("a", (1 << 40, 1 << 40), 0, 0)]), "impossible shape"),
    "unknown storage": (gguf([_ONE], [tensor("a", (32,), 250, 0)], data=128), "not known here"),
    "removed storage": (gguf([_ONE], [tensor("a", (32,), 31, 0)], data=128), "Q4_0_4_4"),
    "row no multiple": (gguf([_ONE], [tensor("a", (33,), 2, 0)], data=128), "multiple of 32"),
    "unaligned": (gguf([_ONE], [tensor("a", (8,), 0, 4)], data=128), "aligned"),
    "tensor twice": (gguf([_ONE], [tensor("a", (8,), 0, 0), tensor("a", (8,), 0, 32)], data=64), "twice"),
    "overlap": (gguf([_ONE], [tensor("a", (16,), 0, 0), tensor("b", (8,), 0, 32)], data=96), "overlap"),
    "out of the file": (gguf([_ONE], [tensor("a", (16,), 0, 0)], data=32), "shorter"),
    "far out of the file": (gguf([_ONE], [tensor("a", (16,), 0, 1 << 62)], data=64), "shorter"),
    "name too long": (gguf([_ONE], [tensor("a" * 64, (8,), 0, 0)], data=32), "name"),
    "many short arrays": (
        gguf([array(f"k{i}", BOOL, [True] * 1_000) for i in range(70)]), "short arrays"
    ),
    "much text": (gguf([entry(f"k{i}", STRING, "x" * 900_000) for i in range(10)]), "longer than"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_defect_has_its_own_words(name: str) -> None:
    raw, words = CASES[name]

    with pytest.raises(GgufError) as caught:
        read_header_bytes(raw, len(raw))

    assert words in str(caught.value)
    assert caught.value.cause
    assert caught.value.hint


def test_a_file_cut_anywhere_is_refused() -> None:
    data_offset = read_header_bytes(WHOLE, len(WHOLE)).data_offset
    for length in (*range(300), *range(300, len(WHOLE) - 500, 97), *range(len(WHOLE) - 500, len(WHOLE))):
        with pytest.raises(GgufError) as caught:
            read_header_bytes(WHOLE[:length], length)
        assert caught.value.cause
        if length < data_offset - 32:
            with pytest.raises(GgufError):
                read_header_bytes(WHOLE[:length], len(WHOLE))  # the size is right, the bytes are missing


def test_a_header_reads_the_same_through_any_window() -> None:
    class Narrow(BytesSource):
        windows = (1, 1)

    whole = read_header_bytes(WHOLE, len(WHOLE))
    for size in range(1, 70):
        Narrow.windows = (size, size)
        assert read_source(Narrow(WHOLE, len(WHOLE))) == whole


@pytest.mark.parametrize(
    "make",
    [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path), lambda path: os.symlink(path, path)],
    ids=["folder", "fifo", "device", "circle of links"],
)
def test_what_is_no_file_is_refused_at_once(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "model.gguf")

    with pytest.raises(GgufError, match=r"model\.gguf can't be read"):
        read_header(tmp_path / "model.gguf")


@pytest.mark.parametrize("path", ["a\0b", "\x1b[31mred", "", "x" * 5_000])
def test_an_impossible_path_is_refused_and_cleaned(path: str) -> None:
    with pytest.raises(GgufError) as caught:
        read_header(path)

    assert "\x1b" not in str(caught.value)
    assert "\0" not in str(caught.value)


def test_a_path_may_be_a_text(tmp_path: Path) -> None:
    (tmp_path / "http:").mkdir()
    path = tmp_path / "http:" / "model.gguf"
    path.write_bytes(WHOLE)

    assert read_header(str(path)) == read_header(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"nowhere\.gguf can't be read"):
        read_header(tmp_path / "nowhere.gguf")


def test_control_characters_of_a_header_do_not_reach_the_message() -> None:
    raw = gguf([entry("\x1b[31mred\x07", STRING, "x")] * 2)

    with pytest.raises(GgufError) as caught:
        read_header_bytes(raw, len(raw))

    assert "\x1b" not in str(caught.value)
    assert "\x07" not in str(caught.value)


def test_a_text_too_long_to_matter_is_passed_over() -> None:
    raw = gguf([entry("tokenizer.huggingface.json", STRING, "x" * (2 << 20)), entry("a", F32, 0.5)])

    metadata = read_header_bytes(raw, len(raw)).metadata

    assert getattr(metadata["tokenizer.huggingface.json"], "count", None) == 2 << 20
    assert metadata["a"] == 0.5


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        (b"", "it is empty"),
        (b"G", "it has only 1 byte"),
        (b"GGU", "it has only 3 bytes"),
        (b"\x8215\x00rest", "it starts with 82 31 35 00 instead of 'GGUF' (47 47 55 46)"),
        (b"<!DOCTYPE", "it starts with '<!DO' instead of 'GGUF' (47 47 55 46)"),
    ],
)
def test_the_start_of_the_file_is_told_as_it_is(raw: bytes, cause: str) -> None:
    with pytest.raises(GgufError) as caught:
        read_header_bytes(raw, len(raw))

    assert caught.value.cause == cause


@pytest.mark.parametrize("entries", [[], [entry("general.architecture", U32, 5)]])
def test_a_header_without_an_architecture_says_so(entries: list[bytes]) -> None:
    raw = gguf(entries)

    with pytest.raises(GgufError) as caught:
        shape_of(read_header_bytes(raw, len(raw)))

    assert caught.value.cause == "its header names no architecture (general.architecture)"


@pytest.mark.parametrize("name", CASES)
def test_no_hint_takes_the_file_for_one_that_was_pulled(name: str) -> None:
    with pytest.raises(GgufError) as caught:
        read_header_bytes(CASES[name][0], len(CASES[name][0]))

    assert "pull" not in (caught.value.hint or "")
    assert "download" not in (caught.value.hint or "")
