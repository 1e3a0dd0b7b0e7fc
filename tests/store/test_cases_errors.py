"""The table of cases that end in a named error: what arrived is kept, and the next pull goes on with it."""

from __future__ import annotations

import pytest

from appliance.errors import DownloadError, NotVerified
from appliance.paths import Paths
from tests.store import server as acts
from tests.store.cases import (
    BODY,
    CHUNK,
    OTHER,
    SIZE,
    Case,
    logged,
    part_in,
    play,
    right,
    within,
)
from tests.store.helpers import MIB, at_url, files_in
from tests.store.server import Host

FAILED = [
    Case(
        "always one bit",
        flips={7 * CHUNK: 99},
        sent=2 * SIZE,
        error=NotVerified,
        says="not the file",
        aside=1,
    ),
    Case(
        "another file of the same size",
        usual=acts.change(OTHER, None),
        sent=2 * SIZE,
        error=NotVerified,
        aside=1,
    ),
    Case(
        "the file changes on the way",
        (acts.honest, acts.honest, acts.change(OTHER, '"two"')),
        sent=6 * SIZE,
        error=NotVerified,
        aside=1,
    ),
    Case(
        "a page",
        usual=acts.says(b"<html>Log in", "text/html"),
        sent=0,
        error=DownloadError,
        says="Log in",
        requests=1,
    ),
    Case(
        "a page after half",
        (acts.drop(MIB),),
        acts.says(b"<html>Log in", "text/html"),
        before=logged(*range(24)),
        error=DownloadError,
        says="Log in",
        kept=SIZE // 2,
    ),
    Case(
        "404 after half",
        usual=acts.status(404),
        before=logged(*range(24)),
        sent=0,
        error=DownloadError,
        says="not there",
        kept=SIZE // 2,
        requests=1,
    ),
    Case("403", usual=acts.status(403), sent=0, error=DownloadError, says="not allowed", requests=1),
    Case("401", usual=acts.status(401), sent=0, error=DownloadError, says="HF_TOKEN", requests=1),
    Case(
        "always 500",
        usual=acts.status(500),
        before=logged(3, 4),
        sent=0,
        error=DownloadError,
        says="answered 500, 4 times",
        kept=2 * CHUNK,
        requests=4,
    ),
    Case(
        "dead before a byte",
        usual=acts.drop(0),
        before=logged(3, 4),
        sent=0,
        error=DownloadError,
        says="without a new byte",
        kept=2 * CHUNK,
        requests=4,
    ),
    Case(
        "always silent",
        usual=acts.silent,
        before=logged(3),
        sent=0,
        error=DownloadError,
        says="nothing for too long",
        kept=CHUNK,
        requests=4,
    ),
    Case(
        "always 416",
        usual=acts.status(416),
        before=logged(3),
        sent=0,
        error=DownloadError,
        says="refused the range",
        kept=CHUNK,
    ),
    Case(
        "always a wrong range",
        usual=acts.wrong_range("bytes 1-2/3"),
        before=logged(3),
        sent=8 * SIZE,
        error=DownloadError,
        says="another range",
        kept=CHUNK,
    ),
    Case(
        "another size in 416",
        usual=acts.status(416, Content_Range="bytes */9"),
        before=logged(3),
        sent=0,
        error=DownloadError,
        says="offers 9 bytes",
        kept=CHUNK,
    ),
    Case(
        "another size",
        usual=acts.shorter,
        before=logged(3),
        sent=0,
        error=DownloadError,
        says="another tiny.gguf",
        kept=CHUNK,
    ),
    Case(
        "a wait of an hour",
        usual=acts.status(429, Retry_After="3600"),
        before=logged(3),
        sent=0,
        error=DownloadError,
        says="3600 seconds",
        kept=CHUNK,
        requests=1,
    ),
    Case(
        "whole bodies that break early",
        usual=lambda h, r: acts.send(h, r, h.body, whole=True, stop_at=MIB),
        before=logged(47),
        sent=8 * MIB,
        error=DownloadError,
        says="without a new byte",
        kept=MIB + CHUNK,
    ),
    Case(
        "encoded",
        usual=acts.encoded,
        before=logged(3),
        sent=0,
        error=DownloadError,
        says="encoding gzip",
        kept=CHUNK,
        requests=1,
    ),
    Case(
        "a pointer of LFS",
        usual=acts.says(b"version https://git-lfs.github.com/spec/v1\n" + bytes(SIZE - 43)),
        sent=0,
        error=DownloadError,
        says="Git LFS",
        requests=1,
    ),
    Case("no GGUF", usual=acts.says(bytes(SIZE)), sent=0, error=NotVerified, says="no GGUF", requests=1),
    Case(
        "a repair without a network",
        (*[acts.honest] * 12,),
        acts.status(404),
        flips={CHUNK: 1},
        error=DownloadError,
        says="not there",
        kept=SIZE - CHUNK,
    ),
]


@pytest.mark.parametrize("case", FAILED, ids=lambda case: case.id)
async def test_ends_in_a_clear_error(case: Case, paths: Paths, host: Host) -> None:
    store, part = play(case, paths, host), part_in(paths)
    assert case.error is not None
    with pytest.raises(case.error, match=f"(?s).*{case.says}") as caught:
        await store.pull(at_url(host.url, BODY))
    assert caught.value.hint
    assert store.list() == ()
    assert len([left for left in store.leftovers() if left.kind == "quarantined"]) == case.aside
    if case.kept:
        assert right(part) >= case.kept
    else:
        assert files_in(paths.models) == []
    within(case, host)
    if case.kept:
        host.acts, host.usual, host.flips, host.sent = [], None, {}, 0
        stored = await store.pull(at_url(host.url, BODY))
        assert stored.main.read_bytes() == BODY
        assert host.sent <= SIZE - case.kept + CHUNK
