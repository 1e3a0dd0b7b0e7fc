"""A pull of a model that is damaged here fetches what differs, as a repair does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.errors import NotVerified
from appliance.paths import Paths
from appliance.store import Store
from tests.store.helpers import MIB, QUICK, at_url, gguf
from tests.store.server import Host

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


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


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
