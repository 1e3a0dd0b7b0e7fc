"""Several connections for one file: when they open, what they share, how they end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from email.utils import formatdate

import psutil
import pytest
from aiohttp import web

from appliance.errors import DownloadError
from appliance.paths import Paths
from appliance.settings import Downloads
from appliance.store import Store, transfer
from appliance.store.hasher import Hasher
from appliance.store.limiter import Bucket
from tests.store import server as acts
from tests.store.cases import BODY, CHUNK, LIMITS, SIZE
from tests.store.helpers import Seen, at_url, files_in, until
from tests.store.server import Host


@pytest.fixture
def body_host(host: Host) -> Host:
    """A server of 48 small chunks."""
    host.body = BODY
    return host


@pytest.fixture
async def cdn() -> AsyncIterator[Host]:
    """Where redirects lead."""
    server = Host(BODY)
    runner = await server.start()
    yield server
    await runner.cleanup()


def small(paths: Paths, **downloads: int) -> Store:
    return Store(paths, env={}, limits=LIMITS, downloads=Downloads(**downloads))


class TestHowManyAreOpened:
    async def test_one_until_the_first_range_is_here_then_as_many_as_are_set(
        self, paths: Paths, body_host: Host
    ) -> None:
        async def gate(host: Host, request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(0.3)
            assert host.most == 1
            return await acts.honest(host, request)

        body_host.acts, body_host.usual = [gate], acts.throttled(0.02)
        await small(paths).pull(at_url(body_host.url, BODY))
        assert body_host.most == 4

    @pytest.mark.parametrize(("fast", "most"), [(1, 1), (1 << 40, 4)])
    async def test_one_that_is_fast_stays_alone(
        self, paths: Paths, body_host: Host, fast: int, most: int
    ) -> None:
        """`fast` in bytes per second: above it other connections would only cost time."""
        body_host.usual = acts.throttled(0.02)
        limits = replace(LIMITS, settle_s=0.01, fast=fast)
        await Store(paths, env={}, limits=limits).pull(at_url(body_host.url, BODY))
        assert body_host.most == most

    @pytest.mark.parametrize("connections", [1, 2, 6])
    async def test_the_setting_is_the_most(self, paths: Paths, body_host: Host, connections: int) -> None:
        body_host.usual = acts.throttled(0.01)
        await small(paths, connections=connections).pull(at_url(body_host.url, BODY))
        assert body_host.most == connections

    async def test_a_small_file_has_one(self, store: Store, body_host: Host) -> None:
        await store.pull(at_url(body_host.url, BODY))  # with chunks of 8 MiB
        assert body_host.ranges == [f"bytes=0-{SIZE - 1}"]

    async def test_a_server_that_asks_for_time_gets_it_from_all_and_fewer_ask_then(
        self, paths: Paths, body_host: Host
    ) -> None:
        later: list[float] = []

        async def note(host: Host, request: web.Request) -> web.StreamResponse:
            later.append(time.monotonic())
            host.most = max(0, host.active)
            return await acts.throttled(0.01)(host, request)

        body_host.acts = [acts.honest, acts.status(429, Retry_After="1")]
        body_host.usual = note
        began = time.monotonic()
        await small(paths, connections=2).pull(at_url(body_host.url, BODY))
        assert [at for at in later if 0.3 < at - began < 0.95] == []
        assert body_host.most == 1

    async def test_a_date_to_wait_for_is_kept(self, paths: Paths, body_host: Host) -> None:
        body_host.acts = [acts.status(503, Retry_After=formatdate(time.time() + 2, usegmt=True))]
        began = time.monotonic()
        await small(paths).pull(at_url(body_host.url, BODY))
        assert time.monotonic() - began >= 0.9

    async def test_what_a_slow_connection_has_is_taken_over(self, paths: Paths, body_host: Host) -> None:
        never = asyncio.Event()
        body_host.acts = [acts.honest, acts.held(5 * CHUNK, never)]
        store = Store(paths, env={}, limits=replace(LIMITS, silence_s=30.0))
        pulling = asyncio.create_task(store.pull(at_url(body_host.url, BODY)))
        assert (await pulling).main.read_bytes() == BODY
        never.set()
        assert body_host.sent <= SIZE + 4 * CHUNK


class TestTheHashSetsThePace:
    async def test_connections_wait_for_it_and_all_arrives(
        self, paths: Paths, body_host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transfer, "_LAG", CHUNK)
        stored = await small(paths).pull(at_url(body_host.url, BODY))
        assert stored.main.read_bytes() == BODY

    async def test_nobody_waits_for_one_that_has_failed(
        self, paths: Paths, body_host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(hasher: Hasher, start: int, stop: int) -> None:
            raise MemoryError

        monkeypatch.setattr(transfer, "_LAG", CHUNK)
        monkeypatch.setattr(Hasher, "_take", broken)
        with pytest.raises(MemoryError):
            await small(paths).pull(at_url(body_host.url, BODY))
        assert body_host.sent == SIZE


class TestTheAddressOfARedirect:
    async def test_is_used_by_all_and_asked_for_once(self, paths: Paths, host: Host, cdn: Host) -> None:
        host.usual = acts.redirect(f"{cdn.url}/blob?signature=1")
        await small(paths).pull(at_url(host.url, BODY))
        assert len(host.requests) == 1
        assert len(cdn.requests) >= 12

    @pytest.mark.parametrize("code", [403, 404, 410, 500])
    async def test_that_expires_on_the_way_is_asked_for_again(
        self, paths: Paths, host: Host, cdn: Host, code: int
    ) -> None:
        host.acts = [acts.redirect(f"{cdn.url}/one"), acts.redirect(f"{cdn.url}/two")]
        host.usual = acts.redirect(f"{cdn.url}/three")
        cdn.acts = [acts.honest, acts.honest, acts.status(code)]
        stored = await small(paths, connections=1).pull(at_url(host.url, BODY))
        assert stored.main.read_bytes() == BODY
        assert [request.path for request in cdn.requests[:4]] == ["/one", "/one", "/one", "/two"]
        assert cdn.sent == SIZE

    async def test_that_is_always_refused_is_an_error(self, paths: Paths, host: Host, cdn: Host) -> None:
        host.usual, cdn.usual = acts.redirect(f"{cdn.url}/one"), acts.status(403)
        with pytest.raises(DownloadError, match="403"):
            await small(paths).pull(at_url(host.url, BODY))
        assert len(cdn.requests) == 2


class TestCancel:
    async def test_it_ends_at_once_and_leaves_no_thread_and_no_file_open(
        self, paths: Paths, body_host: Host
    ) -> None:
        never, me = asyncio.Event(), psutil.Process()
        ref, store = at_url(body_host.url, BODY), small(paths)
        await store.pull(ref)  # what is opened once for the whole process
        store.remove(ref)
        before = me.num_fds()
        body_host.requests.clear()
        body_host.acts = [acts.honest] + [acts.held(n * 4 * CHUNK + 1000, never) for n in range(1, 5)]
        body_host.usual = acts.silent
        pulling = asyncio.create_task(store.pull(ref))
        await until(lambda: len(body_host.requests) >= 5, "connections")
        began = time.monotonic()
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        assert time.monotonic() - began < 0.5  # 0.2 on a quiet machine
        names = [thread.name for thread in threading.enumerate()]
        assert [name for name in names if name.startswith("store-")] == []
        assert [file.path for file in me.open_files() if str(paths.models) in file.path] == []
        never.set()
        await until(lambda: me.num_fds() <= before + 1, "closed connections")
        (part,) = files_in(paths.models)
        assert part.stat().st_size > 4 * CHUNK
        body_host.acts, body_host.usual, body_host.sent = [], None, 0
        assert (await store.pull(ref)).main.read_bytes() == BODY
        assert body_host.sent < SIZE - 3 * CHUNK

    async def test_of_a_wait_that_the_server_asked_for(self, paths: Paths, body_host: Host) -> None:
        body_host.usual = acts.status(429, Retry_After="60")
        pulling = asyncio.create_task(small(paths).pull(at_url(body_host.url, BODY)))
        await until(lambda: bool(body_host.requests), "a request")
        await asyncio.sleep(0.1)
        began = time.monotonic()
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        assert time.monotonic() - began < 0.5


class TestTheRate:
    def test_a_bucket_spreads_bytes_evenly(self) -> None:
        now = 10.0
        bucket = Bucket(1000, clock=lambda: now)
        assert bucket.take(100) == 0.0  # what a tenth of a second may bring at once
        assert bucket.take(500) == pytest.approx(0.5)
        now = 10.5
        assert bucket.take(1000) == pytest.approx(1.0)
        now = 100.0
        assert bucket.take(200) == pytest.approx(0.1)

    def test_without_a_rate_nothing_waits(self) -> None:
        assert (Bucket().take(1 << 40), Bucket().piece(1 << 20)) == (0.0, 1 << 20)

    async def test_holds_over_all_connections(self, paths: Paths, body_host: Host) -> None:
        began, seen = time.monotonic(), Seen()
        await small(paths, rate=SIZE).pull(at_url(body_host.url, BODY), seen)
        assert time.monotonic() - began >= 0.45  # a second, less the last piece (0.1 s) of four, and a burst
        began = time.monotonic()
        store = small(paths, rate=1 << 30)
        store.remove("tiny:F32")
        await store.pull(at_url(body_host.url, BODY), seen, rate=SIZE)
        assert 0.45 <= time.monotonic() - began <= 5

    async def test_a_cancel_ends_its_wait(self, paths: Paths, body_host: Host) -> None:
        pulling = asyncio.create_task(small(paths, rate=2000).pull(at_url(body_host.url, BODY)))
        await until(lambda: body_host.sent > 0, "bytes")
        began = time.monotonic()
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        assert time.monotonic() - began < 0.5


class TestProgress:
    async def test_bytes_grow_to_the_whole_and_a_resume_says_what_it_reads(
        self, paths: Paths, body_host: Host
    ) -> None:
        body_host.usual = acts.throttled(0.03)
        seen, again, store = Seen(), Seen(), small(paths)
        pulling = asyncio.create_task(store.pull(at_url(body_host.url, BODY), seen))
        await until(lambda: body_host.sent > SIZE // 2, "half of it")
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        done = [item.done for item in seen]
        assert done == sorted(done)
        await store.pull(at_url(body_host.url, BODY), again)
        assert again.phases == ["checking disk", "verifying", "downloading", "verifying", "done"]
        assert "reading what has arrived before" in [item.message for item in again]
        downloading = [item.done for item in again if item.phase == "downloading"]
        assert downloading[0] >= SIZE // 4

    async def test_a_repair_is_a_phase_of_its_own(self, paths: Paths, body_host: Host) -> None:
        body_host.flips = {CHUNK: 1}
        seen = Seen()
        await small(paths).pull(at_url(body_host.url, BODY), seen)
        assert seen.phases[-3:] == ["verifying", "repairing", "done"]
