"""However a server misbehaves: a verified file, or a clear error with the partial kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.utils import formatdate

import pytest
from aiohttp import web

from appliance.catalog import ModelRef, UrlSource
from appliance.errors import ApplianceError, DownloadError, GgufError, NotVerified
from appliance.paths import Paths
from appliance.store import Store
from tests.store import server as acts
from tests.store.helpers import MIB, Seen, at_url, files_in, gguf, made, pin
from tests.store.server import Act, Host

HALF = 1_500_000
SIZE = 3 * MIB


def split_set(host: Host, parts: Sequence[bytes]) -> ModelRef:
    """The parts of a set in one folder of the server."""
    files = [
        pin(f"sub/m-{n:05}-of-{len(parts):05}.gguf", body).model_copy(update={"part": n})
        for n, body in enumerate(parts, 1)
    ]
    return made(UrlSource(kind="url", url=f"{host.url}/f/"), *files)


def rest(start: int = 0) -> str:
    """The range from `start` to the end of the small model."""
    return f"bytes={start}-{SIZE - 1}"


class TestEndsInAVerifiedFile:
    @pytest.mark.parametrize(
        ("plays", "ranges"),
        [
            pytest.param([], [rest()], id="honest"),
            pytest.param([acts.cut(HALF)], [rest(), rest(HALF)], id="one cut"),
            pytest.param(
                [acts.cut(n * 65_536) for n in range(1, 13)],
                [rest(n * 65_536) for n in range(13)],
                id="twelve cuts, each with a little progress",
            ),
            pytest.param([acts.cut(HALF), acts.whole], [rest(), rest(HALF)], id="200 to a range"),
            pytest.param(
                [acts.cut(HALF), acts.wrong_range(f"bytes 0-{SIZE - 1}/{SIZE}")],
                [rest(), rest(HALF), None],
                id="206 from another start",
            ),
            pytest.param(
                [acts.cut(HALF), acts.wrong_range(f"bytes {HALF}-{SIZE}/{SIZE + 1}")],
                [rest(), rest(HALF), None],
                id="206 of another file",
            ),
            pytest.param(
                [acts.cut(HALF), acts.status(416)], [rest(), rest(HALF), None], id="416 to a good range"
            ),
            pytest.param([acts.status(503), acts.status(502)], [rest()] * 3, id="5xx, then well"),
            pytest.param([acts.status(429, Retry_After="0")], [rest()] * 2, id="429 with seconds"),
        ],
    )
    async def test_case(self, store: Store, host: Host, plays: list[Act], ranges: list[str | None]) -> None:
        host.acts = plays
        stored = await store.pull(at_url(host.url, host.body))
        assert stored.main.read_bytes() == host.body
        assert host.ranges == ranges
        assert store.leftovers() == ()

    async def test_a_repeated_pull_asks_nobody(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        first = await store.pull(ref)
        seen = Seen()
        assert await store.pull(ref, seen) == first
        assert len(host.requests) == 1
        assert seen.phases == ["done"]

    async def test_retry_after_is_honoured(self, store: Store, host: Host) -> None:
        host.acts = [acts.status(429, Retry_After="1")]
        began = time.monotonic()
        await store.pull(at_url(host.url, host.body))
        assert time.monotonic() - began >= 1.0

    async def test_retry_after_as_a_date_is_honoured(self, store: Store, host: Host) -> None:
        host.acts = [acts.status(503, Retry_After=formatdate(time.time() + 2, usegmt=True))]
        began = time.monotonic()
        await store.pull(at_url(host.url, host.body))
        assert time.monotonic() - began >= 0.9

    async def test_progress_counts_up_to_the_whole(self, store: Store, host: Host) -> None:
        seen = Seen()
        await store.pull(at_url(host.url, host.body), seen)
        assert seen.phases == ["checking disk", "downloading", "verifying", "done"]
        assert (seen[-1].done, seen[-1].total, seen[-1].resumable) == (SIZE, SIZE, True)
        assert [p.done for p in seen] == sorted(p.done for p in seen)

    async def test_a_file_that_changed_on_the_server_is_not_joined_to_the_old_part(
        self, store: Store, host: Host
    ) -> None:
        new = gguf(seed=2)
        old, host.body = host.body, host.body

        async def change(h: Host, request: object) -> web.StreamResponse:
            h.body, h.etag = new, '"two"'
            raise web.HTTPServiceUnavailable

        host.acts = [acts.cut(HALF), change]
        stored = await store.pull(at_url(host.url, new))
        assert old != new
        assert stored.main.read_bytes() == new
        assert host.requests[-1].headers["If-Range"] == acts.ETAG

    async def test_a_folder_url_gives_each_file_of_a_split_set(self, store: Store, host: Host) -> None:
        parts = [gguf(SIZE, seed=n, part=(n, 2)) for n in (1, 2)]
        host.acts = [acts.change(part, None) for part in parts]
        stored = await store.pull(split_set(host, parts))
        assert [r.path for r in host.requests] == [f"/f/sub/m-0000{n}-of-00002.gguf" for n in (1, 2)]
        assert stored.main.name == "m-00001-of-00002.gguf"
        assert len(stored.files) == 2

    async def test_a_set_whose_parts_do_not_belong_together_is_no_model(
        self, store: Store, host: Host
    ) -> None:
        parts = [gguf(SIZE, seed=n, part=(1, 2)) for n in (1, 2)]
        host.acts = [acts.change(part, None) for part in parts]
        with pytest.raises(GgufError, match="not a whole model"):
            await store.pull(split_set(host, parts))
        assert store.list() == ()


class TestEndsInAClearError:
    @pytest.mark.parametrize(
        ("play", "kind", "said"),
        [
            pytest.param(acts.status(401), DownloadError, "HF_TOKEN", id="401"),
            pytest.param(acts.status(403), DownloadError, "not allowed", id="403"),
            pytest.param(acts.status(404), DownloadError, "not there", id="404"),
            pytest.param(acts.status(429, Retry_After="3600"), DownloadError, "3600 seconds", id="long wait"),
            pytest.param(
                acts.says(b"<!DOCTYPE html><title>Log in</title>", "text/html"),
                DownloadError, "Log in", id="a login page",
            ),
            pytest.param(
                acts.says(b'{"error": "quota"}', "application/json"), DownloadError, "quota", id="JSON",
            ),
            pytest.param(
                acts.says(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n" + bytes(SIZE - 56)),
                DownloadError, "Git LFS", id="an LFS pointer",
            ),
            pytest.param(acts.encoded, DownloadError, "gzip", id="Content-Encoding"),
            pytest.param(acts.compressed, DownloadError, "compressed", id="gzip unsaid"),
            pytest.param(acts.shorter, DownloadError, "another tiny.gguf", id="another size"),
            pytest.param(acts.says(bytes(SIZE)), NotVerified, "no GGUF file", id="another magic"),
            pytest.param(
                acts.says(b"GGUF\x09\0\0\0" + bytes(SIZE - 8)), NotVerified, "version 9", id="GGUF version 9",
            ),
        ],
    )  # fmt: skip
    async def test_at_once_and_nothing_is_kept(
        self, store: Store, paths: Paths, host: Host, play: Act, kind: type[ApplianceError], said: str
    ) -> None:
        host.acts = [play]
        seen = Seen()
        with pytest.raises(kind, match=r"(?s).*" + said):
            await store.pull(at_url(host.url, host.body), seen)
        assert len(host.requests) == 1
        assert store.list() == ()
        assert files_in(paths.models, (".part", ".gguf")) == []
        assert seen[-1].phase == "failed"

    @pytest.mark.parametrize(
        "play",
        [
            acts.status(404),
            acts.says(b"<html>busy</html>", "text/html"),
            acts.shorter,
            acts.says(bytes(SIZE)),
            acts.encoded,
        ],
    )
    async def test_what_had_arrived_before_is_kept(
        self, store: Store, paths: Paths, host: Host, play: Act
    ) -> None:
        host.acts = [acts.cut(HALF), play]
        with pytest.raises(ApplianceError):
            await store.pull(at_url(host.url, host.body))
        assert [p.stat().st_size for p in files_in(paths.models)] == [HALF]
        stored = await store.pull(at_url(host.url, host.body))
        assert host.ranges[-1] == rest(HALF)
        assert stored.main.read_bytes() == host.body

    async def test_a_server_that_always_fails_is_given_up(self, store: Store, host: Host) -> None:
        host.acts = [acts.status(500)] * 50
        with pytest.raises(DownloadError) as caught:
            await store.pull(at_url(host.url, host.body))
        assert len(host.requests) == 4
        assert "the server answered 500" in str(caught.value)

    async def test_endless_restarts_from_zero_are_given_up(self, store: Store, host: Host) -> None:
        async def cut_whole(h: Host, request: web.Request) -> web.StreamResponse:
            return await acts.send(h, request, h.body, whole=True, stop_at=HALF)

        host.acts = [cut_whole] * 50
        with pytest.raises(DownloadError, match="without a new byte"):
            await store.pull(at_url(host.url, host.body))
        assert len(host.requests) == 5

    async def test_a_folder_that_cannot_be_made_is_said_before_anything_is_asked(
        self, store: Store, paths: Paths, host: Host
    ) -> None:
        (paths.models / "tiny").write_text("a file where the folder should be")
        with pytest.raises(DownloadError, match="can't be written"):
            await store.pull(at_url(host.url, host.body))
        assert host.requests == []

    async def test_nobody_listens(self, store: Store, host: Host) -> None:
        with pytest.raises(DownloadError, match=r"can't be reached"):
            await store.pull(at_url("http://127.0.0.1:9", host.body))
