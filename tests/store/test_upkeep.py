"""Verify says what is damaged; a repair fetches that and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.catalog import FileSource, ModelRef, UrlSource
from appliance.errors import DownloadError, ModelMissing, NotVerified
from appliance.paths import Paths
from appliance.store import Store, chunks, layout
from appliance.store.chunks import ChunkDigests
from appliance.store.layout import Layout
from appliance.store.lock import Lock
from appliance.store.threads import StopFlag
from tests.store import server as acts
from tests.store.helpers import MIB, QUICK, Seen, at_url, files_in, flip, gguf, made, pin
from tests.store.server import Host

CHUNK = 128 << 10
BODY = gguf(2 * MIB + 1000)
"""17 chunks, the last of 1,000 bytes."""


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


async def damage_of(store: Store, ref: ModelRef) -> dict[str, Any]:
    """What verify says of the one damaged file."""
    with pytest.raises(NotVerified) as caught:
        await store.verify(ref)
    assert caught.value.exit_code == 4
    (item,) = caught.value.damage
    assert item["text"] in str(caught.value)
    return item


class TestDamagedBytes:
    async def test_one_byte_costs_one_chunk(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        flip(stored.main, 5 * CHUNK + 7)
        item = await damage_of(store, ref)
        assert (item["kind"], item["action"]) == ("changed", "partial")
        assert (item["chunks"], item["of_chunks"]) == (1, 17)
        assert item["ranges"] == [[5 * CHUNK, 6 * CHUNK]]
        assert f"bytes {5 * CHUNK}-{6 * CHUNK - 1}" in item["text"]
        assert store.list() == ()
        assert item["kept"] == str(stored.main) + ".part"

        sent = host.sent
        fixed = await store.repair(ref)
        assert (fixed.fetched, fixed.mended) == (CHUNK, True)
        assert host.sent - sent == CHUNK
        assert fixed.stored.main.read_bytes() == host.body
        assert store.leftovers() == ()

    async def test_repair_alone_finds_and_mends(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        flip(stored.main, 0, 3 * CHUNK, 4 * CHUNK - 1, len(BODY) - 1)
        sent, seen = host.sent, Seen()
        fixed = await store.repair(ref, seen)
        assert fixed.damage[0].ranges == (
            (0, CHUNK),
            (3 * CHUNK, 4 * CHUNK),
            (16 * CHUNK, len(BODY)),
        )
        assert fixed.fetched == 2 * CHUNK + 1000 == host.sent - sent
        assert fixed.stored.main.read_bytes() == host.body
        assert seen.phases[-1] == "done"
        again = await store.repair(ref)
        assert (again.fetched, again.mended, again.damage) == (0, False, ())

    async def test_neighbours_are_one_range(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        flip((await store.pull(ref)).main, CHUNK, 2 * CHUNK)
        item = await damage_of(store, ref)
        assert item["ranges"] == [[CHUNK, 3 * CHUNK]]
        assert item["chunks"] == 2

    async def test_a_truncated_file_costs_its_end(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        os.truncate(stored.main, 15 * CHUNK + 5)
        item = await damage_of(store, ref)
        assert item["kind"] == "truncated"
        assert f"ends at byte {15 * CHUNK + 5} of {len(BODY)}" in item["text"]
        fixed = await store.repair(ref)
        assert fixed.fetched == CHUNK + 1000
        assert fixed.stored.main.read_bytes() == host.body

    async def test_surplus_bytes_cost_the_last_chunk(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        with stored.main.open("ab") as file:
            file.write(b"more")
        item = await damage_of(store, ref)
        assert item["kind"] == "longer"
        assert "holds 4 bytes more" in item["text"]
        fixed = await store.repair(ref)
        assert fixed.fetched == 1000
        assert fixed.stored.main.read_bytes() == host.body

    async def test_another_file_is_put_aside_whole(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        other = gguf(len(BODY), seed=5)[::-1]
        stored.main.write_bytes(other)
        item = await damage_of(store, ref)
        assert item["action"] == "quarantined"
        assert "it is another file" in item["text"]
        (kept,) = store.leftovers()
        assert str(kept.path) == item["kept"]
        assert (await store.repair(ref)).fetched == len(BODY)
        assert kept.path.read_bytes() == other

    async def test_a_check_before_a_load_prepares_the_same_repair(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        flip((await store.pull(ref)).main, 2 * CHUNK)
        with pytest.raises(NotVerified, match="models repair tiny:F32"):
            await store.require(ref)
        assert (await store.repair(ref)).fetched == CHUNK

    async def test_pull_goes_on_from_it_too(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        flip((await store.pull(ref)).main, 2 * CHUNK)
        await damage_of(store, ref)
        sent = host.sent
        assert (await store.pull(ref)).main.read_bytes() == host.body
        assert host.sent - sent == CHUNK


class TestWithoutDigests:
    async def test_it_is_put_aside_and_says_that_it_does_not_know(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        chunk_file(stored.main).unlink()
        flip(stored.main, 9)
        item = await damage_of(store, ref)
        assert (item["ranges"], item["chunks"], item["action"]) == (None, None, "quarantined")
        assert "which of its bytes differ is not known" in item["text"]
        assert (await store.repair(ref)).fetched == len(BODY)

    async def test_verify_learns_them_while_all_is_well(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        chunk_file(stored.main).unlink()
        await store.verify(ref)
        known = chunks.read(chunk_file(stored.main), len(BODY), ref.variant.main.sha256)
        assert known == chunks.digests_of(stored.main, StopFlag(), lambda _: None)

    async def test_wrong_digests_of_a_good_file_are_set_right(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        right = chunks.read(chunk_file(stored.main), len(BODY), ref.variant.main.sha256)
        assert right is not None
        replace(right, xxh3=("ab" * 8,) * len(right.xxh3)).write(chunk_file(stored.main))
        await store.verify(ref)
        assert chunks.read(chunk_file(stored.main), len(BODY), ref.variant.main.sha256) == right
        flip(stored.main, 9)
        assert (await store.repair(ref)).fetched == CHUNK

    async def test_digests_that_contradict_the_hash_are_not_believed(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        flip(stored.main, 9)
        now = chunks.digests_of(stored.main, StopFlag(), lambda _: None, chunk=CHUNK)
        replace(now, sha256=ref.variant.main.sha256).write(chunk_file(stored.main))
        item = await damage_of(store, ref)
        assert item["action"] == "quarantined"
        assert (await store.repair(ref)).stored.main.read_bytes() == host.body

    async def test_what_an_earlier_check_quarantined_is_fetched_anew(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        chunk_file(stored.main).unlink()
        flip(stored.main, 9)
        await damage_of(store, ref)
        stored.main.parent.rmdir() if not any(stored.main.parent.iterdir()) else None
        assert (await store.repair(ref)).fetched == len(BODY)

    async def test_nothing_here_is_nothing_to_repair(self, store: Store, host: Host) -> None:
        with pytest.raises(ModelMissing, match="not on this disk"):
            await store.repair(at_url(host.url, host.body))
        assert host.requests == []


class TestBytesOfOthers:
    async def test_a_hard_linked_file_is_never_written(
        self, store: Store, host: Host, tmp_path: Path
    ) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        other = tmp_path / "other.gguf"
        os.link(stored.main, other)
        flip(stored.main, 3 * CHUNK)
        damaged = other.read_bytes()
        item = await damage_of(store, ref)
        assert (item["action"], item["chunks"]) == ("quarantined", 1)
        fixed = await store.repair(ref)
        assert fixed.fetched == len(BODY)
        assert other.read_bytes() == damaged
        assert not fixed.stored.main.samefile(other)

    async def test_a_damaged_reference_stays_and_the_store_fetches_its_own(
        self, store: Store, host: Host, tmp_path: Path
    ) -> None:
        ref, mine = at_url(host.url, host.body), tmp_path / "mine.gguf"
        mine.write_bytes(BODY)
        await store.adopt(ref, [mine], "reference")
        flip(mine, 3 * CHUNK)
        damaged, before = mine.read_bytes(), mine.stat()
        item = await damage_of(store, ref)
        assert (item["action"], item["kept"]) == ("left", str(mine))
        fixed = await store.repair(ref)
        assert mine.read_bytes() == damaged
        assert mine.stat().st_mtime_ns == before.st_mtime_ns
        assert not fixed.stored.files[0].referenced
        assert fixed.stored.main.read_bytes() == BODY

    async def test_of_two_references_only_the_damaged_one_is_fetched(
        self, store: Store, host: Host, tmp_path: Path
    ) -> None:
        ref, (one, two) = pair(host, tmp_path)
        await store.adopt(ref, [one, two], "reference")
        flip(two, 5)
        fixed = await store.repair(ref)
        assert [file.referenced for file in fixed.stored.files] == [True, False]
        assert fixed.stored.files[0].path == one
        assert fixed.fetched == two.stat().st_size
        assert (await store.require(ref)) == fixed.stored

    async def test_a_reference_that_is_away_is_missed_not_forgotten(
        self, store: Store, host: Host, tmp_path: Path
    ) -> None:
        ref, mine = at_url(host.url, host.body), tmp_path / "mine.gguf"
        mine.write_bytes(BODY)
        await store.adopt(ref, [mine], "reference")
        mine.rename(tmp_path / "away")
        with pytest.raises(ModelMissing, match=f"it was {mine}"):
            await store.verify(ref)
        (tmp_path / "away").rename(mine)
        assert (await store.verify(ref)).stored.main == mine
        assert host.requests == []

    async def test_a_new_time_of_a_reference_costs_no_transfer(
        self, store: Store, host: Host, tmp_path: Path
    ) -> None:
        ref, mine = at_url(host.url, host.body), tmp_path / "mine.gguf"
        mine.write_bytes(BODY)
        await store.adopt(ref, [mine], "reference")
        os.utime(mine, ns=(1, 1))
        assert (await store.pull(ref)).files[0].mtime_ns == 1
        assert host.requests == []


class TestSets:
    async def test_only_the_damaged_file_is_fetched(self, store: Store, host: Host, tmp_path: Path) -> None:
        ref, (_, two) = pair(host, tmp_path)
        stored = await store.pull(ref)
        whole = two.read_bytes()
        flip(stored.files[1].path, CHUNK + 1)
        sent = host.sent
        fixed = await store.repair(ref)
        assert [item.file for item in fixed.damage] == [two.name]
        assert host.sent - sent == CHUNK
        assert fixed.stored.files[1].path.read_bytes() == whole

    async def test_a_missing_one_is_named_and_fetched(self, store: Store, host: Host, tmp_path: Path) -> None:
        ref, (one, two) = pair(host, tmp_path)
        (await store.pull(ref)).files[0].path.unlink()
        with pytest.raises(ModelMissing, match=f"{one.name} is missing"):
            await store.verify(ref)
        sent = host.sent
        assert (await store.repair(ref)).fetched == one.stat().st_size == host.sent - sent
        assert len(store.list()) == 1
        assert two.name in {file.name for file in store.list()[0].files}


class TestWhatCanNotBeRead:
    async def test_a_right_that_lacks_is_said_and_nothing_moves(
        self, store: Store, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        sent = host.sent
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "digests_of", refusing(PermissionError(errno.EACCES, "Permission denied")))
            item = await damage_of(store, ref)
            assert (item["kind"], item["action"]) == ("forbidden", "left")
            assert "may not be read by this user" in item["text"]
            with pytest.raises(NotVerified, match="Make it readable"):
                await store.repair(ref)
        assert host.sent == sent
        assert (await store.verify(ref)).stored.main == stored.main

    async def test_a_failing_disk_is_said_and_the_file_replaced(
        self, store: Store, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "digests_of", refusing(OSError(errno.EIO, "Input/output error"), 3 * CHUNK))
            item = await damage_of(store, ref)
        assert (item["kind"], item["action"]) == ("unreadable", "quarantined")
        assert f"can't be read from byte {3 * CHUNK} on (Input/output error)" in item["text"]
        assert not stored.main.exists()
        assert (await store.repair(ref)).stored.main.read_bytes() == host.body

    async def test_a_reference_on_a_failing_disk_is_replaced_by_a_file_of_the_store(
        self, store: Store, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref, mine = at_url(host.url, host.body), tmp_path / "mine.gguf"
        mine.write_bytes(BODY)
        await store.adopt(ref, [mine], "reference")
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "digests_of", refusing(OSError(errno.EIO, "Input/output error")))
            assert (await damage_of(store, ref))["action"] == "left"
        assert (await store.repair(ref)).fetched == len(BODY)
        assert mine.read_bytes() == BODY

    async def test_a_file_that_never_rests_is_no_damage(
        self, store: Store, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        real, times = chunks.digests_of, iter(range(100))

        def moving(path: Path, *args: Any, **how: Any) -> ChunkDigests:
            found = real(path, *args, **how)
            os.utime(path, ns=(1, next(times)))
            return found

        monkeypatch.setattr(chunks, "digests_of", moving)
        with pytest.raises(NotVerified, match="keeps changing while it is read"):
            await store.verify(ref)
        assert stored.main.read_bytes() == host.body


class TestAtWork:
    async def test_another_worker_keeps_verify_from_moving_anything(
        self, store: Store, host: Host, paths: Paths
    ) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        flip(stored.main, 9)
        lock = Lock(Layout(paths.models).lock(ref.ref))
        assert lock.acquire() is None
        with pytest.raises(NotVerified, match=f"process {os.getpid()} is at work on it"):
            await store.verify(ref)
        lock.release()
        assert stored.main.exists()
        assert (await damage_of(store, ref))["action"] == "partial"

    async def test_a_source_that_fails_keeps_what_is_good(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        flip((await store.pull(ref)).main, 9)
        host.acts = [acts.status(404)]
        with pytest.raises(DownloadError):
            await store.repair(ref)
        sent = host.sent
        assert (await store.repair(ref)).fetched == CHUNK == host.sent - sent

    async def test_a_cancel_ends_the_reading_and_changes_nothing(
        self, store: Store, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        reading, real = asyncio.Event(), chunks.digests_of
        loop = asyncio.get_running_loop()

        def endless(path: Path, stop: StopFlag, moved: Any, **_: Any) -> ChunkDigests:
            loop.call_soon_threadsafe(reading.set)
            while True:
                real(path, stop, moved)

        monkeypatch.setattr(chunks, "digests_of", endless)
        task = asyncio.create_task(store.verify(ref))
        await reading.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert store.find(ref.ref) == stored

    async def test_a_copied_file_is_mended_from_its_source(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refuse)
        mine = tmp_path / "mine.gguf"
        mine.write_bytes(BODY)
        ref = made(FileSource(kind="file", path=str(mine)), pin("t.gguf", BODY))
        flip((await store.pull(ref)).main, 4 * CHUNK)
        assert (await store.repair(ref)).stored.main.read_bytes() == BODY
        assert files_in(tmp_path / "home", (".part", ".log")) == []

    async def test_by_name_the_record_counts_whatever_the_catalog_says(
        self, store: Store, host: Host
    ) -> None:
        await store.pull(at_url(host.url, host.body))
        assert (await store.verify("tiny:F32")).n_bytes == len(BODY)
        with pytest.raises(ModelMissing):
            await store.verify("tiny:Q8_0")

    async def test_what_is_not_whole_is_not_called_absent(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        flip((await store.pull(ref)).main, 9)
        await damage_of(store, ref)
        with pytest.raises(ModelMissing, match="not whole on this disk"):
            await store.require(ref)


def chunk_file(path: Path) -> Path:
    return path.with_name(path.name + layout.CHUNKS)


def refusing(error: OSError, after: int = 0) -> Callable[..., ChunkDigests]:
    """Reads `after` bytes, then fails as the system would."""

    def read(path: Path, stop: StopFlag, moved: Callable[[int], None], *, chunk: int) -> ChunkDigests:
        moved(after)
        raise error

    return read


def pair(host: Host, folder: Path) -> tuple[ModelRef, tuple[Path, Path]]:
    """A model with its mmproj, which the host serves by their names, and copies of them in `folder`."""
    one, two = folder / "t.gguf", folder / "mmproj-t.gguf"
    one.write_bytes(gguf(MIB, seed=1))
    two.write_bytes(gguf(MIB, seed=2))
    bodies = {path.name: path.read_bytes() for path in (one, two)}
    host.usual = lambda host, request: acts.send(host, request, bodies[request.path.removeprefix("/")])
    files = (pin(one.name, bodies[one.name]), pin(two.name, bodies[two.name]))
    projector = files[1].model_copy(update={"role": "mmproj"})
    return made(UrlSource(kind="url", url=f"{host.url}/"), files[0], projector), (one, two)
