"""Split models: what a name says, and whether a set is whole."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.errors import GgufError
from appliance.gguf import (
    Header,
    ShardName,
    check_set,
    merged,
    read_header,
    read_header_bytes,
    shape_of,
    shards_of,
)
from tests.gguf.splitting import header_of, split_header
from tests.gguf.writer import I32, STRING, entry, gguf, tensor, text

_U16 = 2


def part(number: int, count: int, *, total: int | None = None, name: str | None = None) -> Header:
    """Part `number` (from 1) of `count` with one tensor."""
    entries = [entry("general.architecture", STRING, "llama")] if number == 1 else []
    for key, value in (("split.no", number - 1), ("split.count", count)):
        entries.append(text(key) + struct.pack("<IH", _U16, value))
    entries.append(entry("split.tensors.count", I32, count if total is None else total))
    raw = gguf(entries, [tensor(name or f"t{number}", (8,), 0, 0)], data=32)
    return read_header_bytes(raw, len(raw))


def names(count: int, stem: str = "m") -> list[str]:
    return [f"{stem}-{n:05}-of-{count:05}.gguf" for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a-00001-of-00004.gguf", ShardName("a", 1, 4)),
        ("folder/Qwen3-Q4_K_M-00004-of-00004.gguf", ShardName("Qwen3-Q4_K_M", 4, 4)),
        ("a-00001-of-00001.gguf", ShardName("a", 1, 1)),
        ("a-00000-of-00004.gguf", None),
        ("a-00005-of-00004.gguf", None),
        ("a-1-of-4.gguf", None),
        ("a-000001-of-000004.gguf", None),
        ("-00001-of-00004.gguf", None),
        ("a-00001-of-00004.gguf.part", None),
        ("a-٠٠٠٠١-of-٠٠٠٠٤.gguf", None),
        ("a.gguf", None),
        ("", None),
    ],
)
def test_a_name_says_which_part_it_is(name: str, found: ShardName | None) -> None:
    assert shards_of(name) == found


def test_a_part_knows_the_names_of_all() -> None:
    shard = shards_of("x/a-00002-of-00003.gguf")

    assert shard is not None
    assert list(shard.all) == names(3, "a")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_whole_set_is_accepted_in_any_order(order: Sequence[int]) -> None:
    headers = [part(n, 3) for n in (1, 2, 3)]

    check_set([headers[i] for i in order], [f"folder/{names(3)[i]}" for i in order])


@pytest.mark.parametrize("name", ["m.gguf", "m-00001-of-00001.gguf"])
def test_a_model_in_one_file_is_a_whole_set(name: str) -> None:
    raw = gguf([entry("general.architecture", STRING, "llama")])

    check_set([read_header_bytes(raw)], [name])
    check_set([part(1, 1)], [name])


BROKEN: dict[str, tuple[list[Header], list[str], str]] = {
    "a part is missing": ([part(1, 3), part(3, 3)], names(3)[::2], "m-00002-of-00003.gguf is missing"),
    "two are missing": ([part(1, 3)], names(3)[:1], "m-00002-of-00003.gguf and 1 more is missing"),
    "one part under another name": ([part(1, 3)], ["m.gguf"], "one of 3 parts"),
    "two models": ([part(1, 2), part(2, 2)], [names(2)[0], names(2, "n")[1]], "one and the same"),
    "a name without a number": ([part(1, 2), part(2, 2)], [names(2)[0], "m.gguf"], "one and the same"),
    "parts of different sets": ([part(1, 2), part(2, 3)], [names(2)[0], names(3)[1]], "one and the same"),
    "names that were swapped": ([part(2, 2), part(1, 2)], names(2), "part 2 of 2"),
    "a part twice": ([part(1, 2)] * 2 + [part(2, 2)], [names(2)[0], *names(2)], "twice"),
    "a file that is no part": ([part(1, 2), part(1, 1)], names(2), "part 1 of 1"),
    "a tensor twice": ([part(1, 2), part(2, 2, name="t1")], names(2), "two of its parts"),
    "too few tensors": ([part(1, 2, total=9), part(2, 2, total=9)], names(2), "2 tensors and state 9"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_set_that_is_not_whole_is_refused(case: str) -> None:
    headers, files, words = BROKEN[case]

    with pytest.raises(GgufError) as caught:
        check_set(headers, files)

    assert words in str(caught.value)
    assert "is not a whole model" in caught.value.message


def test_a_number_of_parts_that_is_none_is_refused() -> None:
    raw = gguf([entry("split.count", STRING, "two")])

    with pytest.raises(GgufError, match="no whole number"):
        check_set([read_header_bytes(raw)], ["m.gguf"])


def test_the_header_of_a_whole_model_has_the_tensors_of_all_parts(smollm2_path: Path, tmp_path: Path) -> None:
    parts = split_header(smollm2_path, 3)
    headers = [header_of(part, tmp_path) for part in parts]
    shuffled = [2, 0, 1]

    found = merged([headers[i] for i in shuffled], [parts[i].name for i in shuffled])

    whole = read_header(smollm2_path)
    assert {(t.name, t.shape, t.type_name) for t in found.tensors} == {
        (t.name, t.shape, t.type_name) for t in whole.tensors
    }
    assert found.metadata == {
        **whole.metadata,
        "split.no": 0,
        "split.count": 3,
        "split.tensors.count": len(whole.tensors),
    }
    assert shape_of(found) == shape_of(whole)
    assert found.file_size == sum(part.size for part in parts)
    ends = sorted((t.offset, t.offset + t.n_bytes) for t in found.tensors)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    assert found.data_offset + ends[-1][1] <= found.file_size


def test_headers_that_are_no_whole_model_are_not_merged() -> None:
    with pytest.raises(GgufError, match=r"m-00002-of-00003\.gguf is missing"):
        merged([part(1, 3), part(3, 3)], names(3)[::2])


def test_a_single_file_is_its_own_header() -> None:
    header = part(1, 1)

    assert merged([header], ["m.gguf"]) is header
