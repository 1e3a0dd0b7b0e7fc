"""A pull of a model that is damaged here fetches what differs, as a repair does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import NotVerified
from appliance.paths import Paths
from appliance.store import Store, chunks
from appliance.store.layout import Layout
from appliance.store.lock import Lock
from tests.store.helpers import MIB, QUICK, Seen, at_url, flip, gguf, until
from tests.store.server import Host, held

CHUNK = 128 << 10
BODY = gguf(2 * MIB + 1000)


@pytest.fixture
def store(paths: Paths) -> Store:
    """A store with small chunks."""
    return Store(paths, limits=replace(QUICK, chunk=CHUNK, segment=4 * CHUNK))


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    server = Host(BODY)
    runner = await server.start()
    yield server
    await runner.cleanup()


@pytest.mark.parametrize("record", ["kept", "lost", "torn"])
@pytest.mark.parametrize(("damage", "costs"), [("a byte", CHUNK), ("cut off", 2 * CHUNK + 1000)])
async def test_it_costs_the_chunks_that_differ(
    store: Store, host: Host, record: str, damage: str, costs: int
) -> None:
    ref = at_url(host.url, host.body)
    stored = await store.pull(ref)
    if damage == "a byte":
        flip(stored.main, 5 * CHUNK + 7)
    else:
        os.truncate(stored.main, 14 * CHUNK + 5)
    path = stored.main.with_name("record.json")
    if record == "lost":
        path.unlink()
    elif record == "torn":
        path.write_bytes(path.read_bytes()[:200])
    sent = host.sent
    assert (await store.pull(ref)).main.read_bytes() == BODY
    assert host.sent - sent == costs
    assert store.leftovers() == ()


async def test_without_digests_it_is_put_aside_and_fetched_whole(store: Store, host: Host) -> None:
    ref = at_url(host.url, host.body)
    stored = await store.pull(ref)
    stored.main.with_name("tiny.gguf.chunks").unlink()
    flip(stored.main, 9)
    sent = host.sent
    assert (await store.pull(ref)).main.read_bytes() == BODY
    assert host.sent - sent == len(BODY)
    assert [left.kind for left in store.leftovers()] == ["quarantined"]


async def test_a_file_with_another_name_is_not_written(store: Store, host: Host, tmp_path: Path) -> None:
    ref = at_url(host.url, host.body)
    stored = await store.pull(ref)
    os.link(stored.main, tmp_path / "mine")
    flip(stored.main, 9)
    damaged = (tmp_path / "mine").read_bytes()
    assert (await store.pull(ref)).main.read_bytes() == BODY
    assert (tmp_path / "mine").read_bytes() == damaged


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder"])
async def test_what_is_no_file_is_named_and_stays(store: Store, host: Host, kind: str) -> None:
    ref = at_url(host.url, host.body)
    path = (await store.pull(ref)).main
    path.unlink()
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.mkdir() if kind == "a folder" else path.symlink_to("/dev/zero")
    sent = host.sent
    async with asyncio.timeout(10):
        with pytest.raises(NotVerified, match=f"it is {kind}, not a regular file") as caught:
            await store.pull(ref)
    assert "Move it away" in (caught.value.hint or "")
    assert path.name in {found.name for found in path.parent.iterdir()}, "it stays"
    assert host.sent == sent


async def test_a_link_to_the_users_own_good_file_is_used_as_it_is(
    store: Store, host: Host, tmp_path: Path
) -> None:
    ref = at_url(host.url, host.body)
    path = (await store.pull(ref)).main
    mine = path.rename(tmp_path / "mine.gguf")
    path.symlink_to(mine)
    sent = host.sent
    await store.pull(ref)
    assert host.sent == sent
    flip(mine, 9)
    damaged = mine.read_bytes()
    assert (await store.pull(ref)).main.read_bytes() == BODY
    assert mine.read_bytes() == damaged
    assert not path.is_symlink()


class TestTogether:
    """Two at a time, each with a store of its own as two commands have."""

    async def test_a_repair_beside_a_pull_follows_it_and_then_verifies(
        self, store: Store, host: Host, paths: Paths
    ) -> None:
        ref, hold = at_url(host.url, host.body), asyncio.Event()
        flip((await store.pull(ref)).main, 9 * CHUNK)
        host.acts, sent = [held(9 * CHUNK + 5, hold)], host.sent
        pulling = asyncio.create_task(store.pull(ref))
        await until(lambda: host.sent - sent == 5, "the pull is at work")
        seen = Seen()
        mending = asyncio.create_task(Store(paths, limits=QUICK).repair(ref, seen))
        await until(lambda: any("is fetching it" in (one.message or "") for one in seen), "it is followed")
        hold.set()
        done = await mending
        assert (await pulling).main.read_bytes() == BODY
        assert (done.fetched, done.mended, done.damage) == (0, False, ())
        assert seen.phases[-2:] == ["verifying", "done"], "what others fetched is read, too"
        assert host.sent - sent == CHUNK

    async def test_a_repair_that_sees_damage_while_a_pull_begins_follows_that(
        self, store: Store, host: Host, paths: Paths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = at_url(host.url, host.body)
        flip((await store.pull(ref)).main, 9 * CHUNK)
        lock, real, reads = Lock(Layout(paths.models).lock(ref.ref)), chunks.digests_of, 0

        def read(*args: Any, **how: Any) -> chunks.ChunkDigests:
            nonlocal reads
            reads += 1
            if reads == 1:
                lock.acquire()  # a pull begins while the repair reads
            return real(*args, **how)

        monkeypatch.setattr(chunks, "digests_of", read)
        seen = Seen()
        mending = asyncio.create_task(store.repair(ref, seen))
        await until(lambda: any("is fetching it" in (one.message or "") for one in seen), "it is followed")
        assert "failed" not in seen.phases
        lock.release()
        assert (await mending).fetched == CHUNK

    async def test_pulls_and_repairs_at_once_cost_what_one_costs(
        self, store: Store, host: Host, paths: Paths
    ) -> None:
        ref = at_url(host.url, host.body)
        flip((await store.pull(ref)).main, 9 * CHUNK)
        sent, others = host.sent, [Store(paths, limits=store._limits) for _ in range(3)]
        work = [store.pull(ref), others[0].repair(ref), others[1].pull(ref), others[2].repair(ref)]
        async with asyncio.timeout(20):
            await asyncio.gather(*work)
        assert host.sent - sent == CHUNK
        assert (await store.verify(ref)).n_bytes == len(BODY)
        assert store.leftovers() == ()
