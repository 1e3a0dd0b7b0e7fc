"""Events are cut at blank lines, the same for every chunking, and keep every byte."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.gateway.sse import EventTooLong, Splitter, fields

_PIECES = st.lists(
    st.sampled_from([b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\n\n", b"\r\r", b"data: x", b":", "é😀".encode()])
    | st.binary(max_size=5),
    max_size=30,
)


def _cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


def _split(chunks: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = Splitter(10_000)
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events, splitter.rest


@given(_PIECES, st.lists(st.integers(0, 10_000), max_size=20))
def test_any_chunking_gives_the_same_events_and_keeps_every_byte(
    pieces: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(pieces)
    whole = _split([stream])
    assert _split(_cut(stream, cuts)) == whole
    assert _split([bytes([byte]) for byte in stream]) == whole
    assert b"".join(whole[0]) + whole[1] == stream


@given(
    st.lists(st.text(st.characters(blacklist_characters="\r\n"), min_size=1), min_size=1, max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_each_event_is_one_event_in_all_three_line_ends(texts: list[str], eol: str) -> None:
    stream = "".join(f"data: {text}{eol}{eol}" for text in texts).encode("utf-8", "replace")
    events, rest = _split([bytes([byte]) for byte in stream])
    if eol == "\r\n":
        assert rest == b""
    got = [fields(event).data for event in events]
    assert got == [text.encode("utf-8", "replace") for text in texts]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_an_event_is_delivered_with_its_last_byte_and_not_later(end: bytes) -> None:
    assert Splitter(100).feed(b"data: 1" + end) == [b"data: 1" + end]


def test_lines_of_one_event_are_joined_and_comments_are_not_data() -> None:
    read = fields(b": ping\r\nevent: error\r\ndata: a\r\ndata:b\r\ndata:\r\n\r\n")
    assert read.data == b"a\nb\n"
    assert read.event == b"error"
    assert fields(b":\n\n").data is None


def test_an_endless_event_is_refused() -> None:
    splitter = Splitter(10)
    with pytest.raises(EventTooLong):
        splitter.feed(b"data: 123456")
