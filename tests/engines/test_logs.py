"""Ring, file and pump."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.engines.logs import FLOOD_LINES_PER_S, LogFile, LogPump, LogRing


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
