"""Ring, file and pump."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from appliance.engines.logfile import WAITING_LINES
from appliance.engines.logs import FLOOD_LINES_PER_S, KEPT_RINGS, OWN, LogBook, LogFile, LogPump, LogRing


def pumped(data: bytes, file: LogFile | None = None, secret: str = "") -> tuple[LogRing, list[str]]:
    """What a child that wrote `data` leaves in the ring, and what its reader saw."""
    read, write = os.pipe()
    ring = LogRing()
    seen: list[str] = []
    pump = LogPump(read, ring, file, seen.append, secret)
    pump.start()
    with os.fdopen(write, "wb") as pipe:
        pipe.write(data)
    pump.join(10)
    assert not pump.is_alive()
    return ring, seen


def test_the_ring_keeps_the_last_lines_and_counts_on() -> None:
    ring = LogRing(3)
    for number in range(1, 6):
        ring.add(f"line {number}")
    assert [(line.seq, line.line) for line in ring.lines()] == [(3, "line 3"), (4, "line 4"), (5, "line 5")]
    assert [line.seq for line in ring.lines(after_seq=4)] == [5]
    assert [line.seq for line in ring.lines(after_seq=0, limit=2)] == [3, 4]
    assert ring.lines(after_seq=5) == ()
    assert ring.last(2) == ("line 4", "line 5")
    assert ring.seq == 5


def test_lines_are_cleaned_split_and_complete() -> None:
    ring, seen = pumped("one\n\x1b]0;title\x07two\x1b[31m\n\n\xff".encode("latin-1") + b"last without end")
    assert seen == ["one", "]0;titletwo[31m", "\N{REPLACEMENT CHARACTER}last without end"]
    assert [line.line for line in ring.lines()] == seen


def test_the_key_is_hidden_wherever_it_stands() -> None:
    ring, _ = pumped(
        b"srv init: api_keys: ****9f3c\nbody has 0123456789abcdef in it\n", secret="0123456789abcdef"
    )
    assert ring.last(2) == ("srv init: api_keys: [hidden]", "body has [hidden] in it")


def test_a_line_without_end_is_cut() -> None:
    ring, _ = pumped(b"x" * 1_000_000 + b"\nafter\n")
    assert ring.last(1) == ("after",)
    assert max(len(line.line) for line in ring.lines()) <= 2_000


def test_a_flood_is_counted_instead_of_kept() -> None:
    count = FLOOD_LINES_PER_S * 3
    ring, seen = pumped(b"noise\n" * count)
    (notice,) = [line.line for line in ring.lines() if "left out" in line.line][:1]
    assert len(seen) < count
    assert "lines left out" in notice


def test_the_file_is_private_and_rotates(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "engine.log"
    file = LogFile(path, limit=1_000)
    for number in range(100):
        file.write(f"line {number:04d} " + "x" * 40)
    file.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in path.parent.iterdir()) == ["engine.log", "engine.log.1", "engine.log.2"]
    assert all(p.stat().st_size <= 1_000 for p in path.parent.iterdir())
    assert "line 0099" in path.read_text()


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    ring, seen = pumped(b"one\ntwo\n", LogFile(blocked / "engine.log"))
    assert seen == ["one", "two"]
    assert ring.seq == 2


@pytest.mark.parametrize("after", [0, 1, 2])
def test_lines_after_a_number_never_repeat(after: int) -> None:
    ring = LogRing()
    for word in ("a", "b", "c"):
        ring.add(word)
    assert [line.seq for line in ring.lines(after)] == list(range(after + 1, 4))


def test_what_we_say_of_an_engine_is_none_of_its_last_words() -> None:
    ring = LogRing()
    for line in ("one", OWN + "restart 1", "two"):
        ring.add(line)
    assert [line.line for line in ring.lines()] == ["one", "[appliance] restart 1", "two"]
    assert ring.last(2) == ("one", "two")
    assert ring.last(2, after_seq=1) == ("two",)


def test_lines_of_several_engines_are_told_in_order_and_can_be_followed() -> None:
    book = LogBook()
    first, second = book.ring("a:Q4"), book.ring("b:Q4")
    for number in range(3):
        first.add(f"a{number}")
        second.add(f"b{number}")
    assert [(line.engine, line.line) for line in book.newest(3)] == [
        ("b:Q4", "b1"), ("a:Q4", "a2"), ("b:Q4", "b2"),
    ]  # fmt: skip
    page = book.lines(0, 4)
    assert [line.line for line in page] == ["a0", "b0", "a1", "b1"]
    assert [line.line for line in book.lines(page[-1].seq, 100)] == ["a2", "b2"]
    assert [line.line for line in book.lines(0, 100, "b:Q4")] == ["b0", "b1", "b2"]
    assert book.engines == ("a:Q4", "b:Q4")
    assert book.ring("a:Q4") is first
    assert second.written == 3


def test_a_flood_of_one_engine_takes_no_line_from_another() -> None:
    book = LogBook(limit=10)
    book.ring("quiet").add("the one line")
    for number in range(1_000):
        book.ring("loud").add(f"{number}")
    assert [line.line for line in book.lines(0, 100, "quiet")] == ["the one line"]
    assert len(book.lines(0, 100)) == 11


def test_a_book_keeps_so_many_rings_and_forgets_the_one_that_was_silent_for_longest() -> None:
    book = LogBook()
    for number in range(KEPT_RINGS):
        book.ring(f"m{number}").add("here")
    book.ring("m0").add("again")
    book.ring("new").add("here")
    assert "m1" not in book.engines
    assert {"m0", "new"} <= set(book.engines)
    assert len(book.engines) == KEPT_RINGS


def test_a_disk_that_takes_nothing_costs_lines_and_no_time(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    os.mkfifo(path)
    file = LogFile(path)
    began = time.monotonic()
    for number in range(2 * WAITING_LINES + 1_000):  # one lot is in its hands, one waits
        file.write(f"line {number}")
    file.close(limit_s=0.1)
    assert time.monotonic() - began < 2.0
    received = b""
    with path.open("rb") as disk:  # it takes lines again
        while b"left out" not in received:
            file.write("later")
            received += disk.read1(1 << 16)
    assert received.startswith(b"line 0\nline 1\n")
    assert b"lines left out: the disk was too slow" in received
