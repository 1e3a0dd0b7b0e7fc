"""The table of cases that end in a verified file, each with a bound on the bytes that were sent for it.

Chunks are small here (64 KiB of a file of 3 MiB), so that every row crosses many.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.paths import Paths
from tests.store import server as acts
from tests.store.cases import (
    BODY,
    CHUNK,
    OTHER,
    SIZE,
    Case,
    and_then,
    flipped,
    holes,
    log_of,
    logged,
    plain,
    play,
    within,
)
from tests.store.helpers import MIB, Seen, at_url, files_in
from tests.store.server import Host

IN_FLIGHT = 4 * CHUNK * 4
"""What may be on its way on four connections that break."""

VERIFIED = [
    Case("honest", requests=12),
    Case("no etag", etag=None, requests=12),
    Case("every answer breaks off", usual=acts.drop(100_000), sent=SIZE + IN_FLIGHT),
    Case("every answer breaks off within a chunk", usual=acts.drop(10_000), sent=SIZE + IN_FLIGHT),
    Case("less than asked for each time", usual=acts.capped(70_000)),
    Case("200 to every range", usual=acts.whole, requests=1, most=1),
    Case(
        "200 to every range, broken off",
        (acts.drop(0), *[acts.drop(99_999)] * 3),
        acts.whole,
        sent=4 * SIZE + 3 * 99_999,  # four connections may get all of it before three of them are closed
    ),
    Case("200 to one range of many", (acts.honest, acts.whole), sent=SIZE + SIZE),
    Case("200 beyond one connection", usual=acts.crowded(1, acts.whole), sent=SIZE + 3 * MIB, most=4),
    Case("416 to every good range", usual=acts.status(416), plays=(acts.status(416), acts.whole), requests=2),
    Case("a wrong start", (acts.wrong_range(f"bytes 5-9/{SIZE}"), acts.whole), sent=2 * SIZE),
    Case("a wrong total", (acts.wrong_range(f"bytes 0-{SIZE}/{SIZE + 1}"), acts.whole), sent=2 * SIZE),
    Case("no Content-Range", (acts.wrong_range("nonsense"), acts.whole), sent=2 * SIZE),
    Case("429 with seconds", (acts.status(429, Retry_After="0"),)),
    Case("503 to more than two", usual=acts.crowded(2, acts.status(503, Retry_After="0"))),
    Case("429 to more than one", usual=acts.crowded(1, acts.status(429, Retry_After="0"))),
    Case("403 to more than one", usual=acts.crowded(1, acts.status(403))),
    Case("more than one are cut off", usual=acts.crowded(1, acts.drop(0)), requests=12 + 12),
    Case("5xx now and then", (acts.status(500), acts.status(502), acts.honest, acts.status(504))),
    Case("silence, then well", (acts.silent,)),
    Case("a longer body", (acts.longer,), requests=1),
    Case("truncated without a length", (acts.truncated,), sent=SIZE + SIZE // 2),
    # damage on the way: looked for in order, so a chunk at the front is found first
    Case("one bit, once", flips={100: 1}, sent=SIZE + CHUNK),
    Case("one bit in the eighth chunk, once", flips={7 * CHUNK + 5: 1}, sent=SIZE + 8 * CHUNK),
    Case("one bit at the end, once", flips={SIZE - 1: 1}, sent=2 * SIZE),
    Case("two chunks, once", flips={3 * CHUNK: 1, 9 * CHUNK: 1}, sent=SIZE + 10 * CHUNK),
    Case("nine chunks, once", flips={n * CHUNK + 99: 1 for n in range(9)}, sent=SIZE + 13 * CHUNK),
    Case("one bit, whole bodies only", usual=acts.whole, flips={9 * CHUNK: 1}, sent=2 * SIZE, requests=2),
    Case(
        "a repair that breaks off",
        (*[acts.honest] * 12, acts.drop(1000)),
        flips={CHUNK: 1},
        sent=SIZE + 3 * CHUNK,
    ),
    # what is on disk before
    Case("half is here", before=logged(*range(24)), sent=SIZE // 2),
    Case("every second chunk is here", before=logged(*range(0, 48, 2)), sent=SIZE // 2),
    Case("all is here, not yet checked", before=logged(*range(48)), sent=0, requests=0),
    Case(
        "a chunk changed on disk",
        before=and_then(logged(*range(48)), flipped(5 * CHUNK)),
        sent=CHUNK,
        requests=1,
    ),
    Case(
        "two changed",
        before=and_then(and_then(logged(*range(48)), flipped(0)), flipped(SIZE - 1)),
        sent=2 * CHUNK,
    ),
    Case("the log is torn", before=logged(*range(24), tail="24 65536 0123"), sent=SIZE // 2),
    Case("the log lies", before=logged(*range(48), lie=True)),
    Case("the log is nonsense", before=and_then(plain(BODY[:MIB]), log_of("\0\xff{[\n" * 9)), sent=2 * MIB),
    Case(
        "the log names impossible chunks",
        before=logged(*range(24), tail=f"999 5 {'0' * 16}\n1 9999999 {'0' * 16}\n"),
        sent=SIZE // 2,
    ),
    Case(
        "the log says more than there is",
        before=and_then(logged(*range(24)), lambda part: os.truncate(part, MIB)),
        sent=2 * MIB,
    ),
    Case("only the log is there", before=and_then(logged(*range(24)), Path.unlink)),
    Case("an earlier version's partial", before=plain(BODY[: SIZE // 3]), sent=2 * MIB),
    Case("an earlier version's, whole", before=plain(BODY), sent=0, requests=0),
    Case(
        "an earlier version's, wrong at the front",
        before=plain(b"GGUF" + bytes(996) + BODY[1000:MIB]),
        sent=2 * MIB + CHUNK,
    ),
    Case("a log that is lost, and holes", before=holes, sent=SIZE - 10 * CHUNK),
    Case("too long", before=plain(BODY + b"x"), aside=1),
    Case("chunks of another file", before=logged(*range(12), body=OTHER), sent=SIZE + 13 * CHUNK),
    Case(
        "another file, and whole bodies only",
        usual=acts.whole,
        before=logged(*range(12), body=OTHER),
        requests=1,
    ),
]


@pytest.mark.parametrize("case", VERIFIED, ids=lambda case: case.id)
async def test_ends_in_a_verified_file(case: Case, paths: Paths, host: Host) -> None:
    store = play(case, paths, host)
    seen = Seen()
    ref = at_url(host.url, BODY)
    stored = await store.pull(ref, seen)
    assert stored.main.read_bytes() == BODY
    assert store.check(ref) == stored
    assert files_in(paths.models, (".part", ".log")) == []
    assert [path.name for path in files_in(paths.models, (".chunks",))] == ["tiny.gguf.chunks"]
    assert [left.kind for left in store.leftovers()] == ["quarantined"] * case.aside
    assert (seen[-1].phase, seen[-1].done) == ("done", SIZE)
    within(case, host)
