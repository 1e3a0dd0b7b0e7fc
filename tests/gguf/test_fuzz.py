"""Headers that nobody wrote by hand: what is valid is read as it was made, the rest ends in a GgufError."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from appliance.errors import GgufError
from appliance.gguf import ArrayInfo, header_bytes, read_header, read_header_bytes, shape_of
from tests.gguf.writer import ARRAY, BOOL, F32, I32, STRING, U32, U64, array, entry, gguf, tensor, text

_MOST_CPU_S = 0.3  # the limits promise 0.1 s on a computer that nobody else uses

_keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_numbers = {
    U32: st.integers(0, 2**32 - 1),
    I32: st.integers(-(2**31), 2**31 - 1),
    U64: st.integers(0, 2**64 - 1),
    F32: st.floats(width=32, allow_nan=False),
    BOOL: st.booleans(),
    STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
}
_kinds = st.sampled_from(sorted(_numbers))


@st.composite
def _values(draw: st.DrawFn) -> tuple[int, object]:
    """A type and a value; a list is an array."""
    kind = draw(_kinds)
    if draw(st.booleans()):
        return kind, draw(_numbers[kind])
    values = draw(st.lists(_numbers[kind], max_size=8))
    return kind, values * 300 if draw(st.booleans()) else values


@st.composite
def _headers(draw: st.DrawFn) -> tuple[bytes, dict[str, object], list[tuple[str, tuple[int, ...]]]]:
    """A valid file, what its metadata are and what its tensors."""
    metadata = draw(st.dictionaries(_keys.filter(lambda k: k != "general.alignment"), _values(), max_size=8))
    entries = [
        array(key, kind, value) if isinstance(value, list) else entry(key, kind, value)
        for key, (kind, value) in metadata.items()
    ]
    sides = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple)
    tensors = draw(st.dictionaries(st.text("abc.", min_size=1, max_size=12), sides, max_size=6))
    rows, at = [], 0
    for name, shape in tensors.items():
        rows.append(tensor(name, shape, 0, at))
        at += -(-4 * _product(shape) // 32) * 32
    return gguf(entries, rows, data=at), {k: v for k, (_, v) in metadata.items()}, list(tensors.items())


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product


def _read_or_refuse(raw: bytes, size: int | None = None) -> None:
    begin = time.process_time()
    refusal: GgufError | None = None
    try:
        shape_of(read_header_bytes(raw, len(raw) if size is None else size))
    except GgufError as error:
        refusal = error
    assert time.process_time() - begin < _MOST_CPU_S
    if refusal is not None:
        assert refusal.message
        assert refusal.hint
        assert str(refusal).isprintable() or "\n" in str(refusal)
        assert "\x1b" not in str(refusal)
        assert len(str(refusal)) < 1_500


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_headers())
def test_a_valid_header_is_read_as_it_was_made(
    made: tuple[bytes, dict[str, object], list[tuple[str, tuple[int, ...]]]],
) -> None:
    raw, metadata, tensors = made

    header = read_header_bytes(raw, len(raw))

    assert [(t.name, t.shape) for t in header.tensors] == tensors
    assert list(header.metadata) == list(metadata)
    for key, value in metadata.items():
        found = header.metadata[key]
        if isinstance(found, ArrayInfo):
            assert isinstance(value, list)
            assert found.count == len(value) > 1_024
        else:
            assert found == (tuple(value) if isinstance(value, list) else value)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_headers(), st.data())
def test_a_valid_header_that_was_changed_is_read_or_refused(
    made: tuple[bytes, dict[str, object], list[tuple[str, tuple[int, ...]]]], data: st.DataObject
) -> None:
    _read_or_refuse(_mutated(made[0], st.integers(0, len(made[0]) - 1), data))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
@example(b"")
def test_random_bytes_behind_the_magic_are_read_or_refused(tail: bytes) -> None:
    _read_or_refuse(b"GGUF\x03\0\0\0" + tail)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=200))
def test_any_counts_are_read_or_refused(n_tensors: int, n_keys: int, tail: bytes) -> None:
    _read_or_refuse(b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + tail)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 12), st.integers(0, 2**64 - 1), st.binary(max_size=300))
def test_any_array_is_read_or_refused(kind: int, count: int, tail: bytes) -> None:
    _read_or_refuse(gguf([text("a") + struct.pack("<IIQ", ARRAY, kind, count) + tail]))


def _mutated(raw: bytes, places: st.SearchStrategy[int], data: st.DataObject) -> bytes:
    """Bytes changed, put in and taken out, lengths replaced, the end cut off."""
    changed = bytearray(raw)
    lengths = st.sampled_from([0, 1, 8, 255, 2**16, 2**31 - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
    for _ in range(data.draw(st.integers(1, 5))):
        at = min(data.draw(places), len(changed))
        match data.draw(st.sampled_from(["change", "insert", "delete", "length", "cut"])):
            case "change":
                changed[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
            case "insert":
                changed[at:at] = data.draw(st.binary(min_size=1, max_size=16))
            case "delete":
                del changed[at : at + data.draw(st.integers(1, 16))]
            case "length":
                changed[at : at + 8] = struct.pack("<Q", data.draw(lengths))
            case _:
                del changed[at:]
    return bytes(changed)


@pytest.fixture(scope="module")
def smollm2_header(smollm2_path: Path) -> bytes:
    return header_bytes(smollm2_path)


@pytest.fixture(scope="module")
def gemma3_header(gemma3_path: Path) -> bytes:
    return header_bytes(gemma3_path)


def _near(raw: bytes, table: int) -> st.SearchStrategy[int]:
    """The metadata's beginning, the tensor table and, more rarely, anything between."""
    last = len(raw) - 1
    ends = st.one_of(st.integers(0, 2_000), st.integers(last - table, last))
    return st.one_of(ends, ends, st.integers(0, last))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_smollm2_header_is_read_or_refused(smollm2_header: bytes, data: st.DataObject) -> None:
    _read_or_refuse(_mutated(smollm2_header, _near(smollm2_header, 20_000), data), 98_362_432)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_gemma3_header_is_read_or_refused(gemma3_header: bytes, data: st.DataObject) -> None:
    _read_or_refuse(_mutated(gemma3_header, _near(gemma3_header, 16_000), data), 253_113_024)


def test_a_changed_file_on_disk_is_read_or_refused(smollm2_header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for at in range(0, 600, 23):
        path.write_bytes(smollm2_header[:at] + b"\xff" + smollm2_header[at + 1 :])
        with pytest.raises(GgufError):  # at the latest because the tensors are not there
            read_header(path)
