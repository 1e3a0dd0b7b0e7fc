"""Check before each load, verify, remove, the file source, room on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.catalog import FileSource
from appliance.errors import DiskFull, ModelMissing, NotVerified
from appliance.paths import Paths
from appliance.store import Store, disk
from appliance.units import GIB
from tests.store import server as acts
from tests.store.disks import small_file_system
from tests.store.helpers import MIB, QUICK, Seen, at_url, files_in, flip, gguf, made, pin
from tests.store.server import Host


class TestCheck:
    async def test_an_unchanged_file_is_not_read(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        atime = stored.main.stat().st_atime_ns
        assert store.check(ref) == stored
        assert stored.main.stat().st_atime_ns == atime

    async def test_absent_is_missing(self, store: Store, host: Host) -> None:
        with pytest.raises(ModelMissing) as caught:
            store.check(at_url(host.url, host.body))
        assert caught.value.exit_code == 4
        assert "models pull tiny:F32" in str(caught.value)

    async def test_a_touched_file_is_hashed_and_recorded_again(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        before = await store.pull(ref)
        os.utime(before.main, ns=(1, 1))
        after = store.check(ref)
        assert after.files[0].mtime_ns == 1
        assert after.verified_at > before.verified_at

    async def test_a_changed_file_is_put_aside_and_pulled_again(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        flip(stored.main, 1_000_000)
        with pytest.raises(NotVerified, match="damaged"):
            store.check(ref)
        assert store.find("tiny:F32") is None
        assert [left.kind for left in store.leftovers()] == ["quarantined"]
        assert (await store.pull(ref)).main.read_bytes() == host.body

    async def test_another_pin_is_not_what_is_here(self, store: Store, host: Host) -> None:
        await store.pull(at_url(host.url, host.body))
        with pytest.raises(ModelMissing, match="another pin"):
            store.check(at_url(host.url, gguf(seed=9)))

    async def test_a_deleted_file_is_missing(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        (await store.pull(ref)).main.unlink()
        assert store.list() == ()
        with pytest.raises(ModelMissing, match="no longer whole"):
            store.check(ref)

    async def test_a_broken_record_means_hash_again_and_no_network(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        stored = await store.pull(ref)
        (stored.main.parent / "record.json").write_text("{")
        assert store.list() == ()
        assert (await store.pull(ref)).main == stored.main
        assert len(host.requests) == 1


class TestVerify:
    async def test_every_byte_is_read(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        await store.pull(ref)
        seen = Seen()
        result = await store.verify(ref, seen)
        assert result.n_bytes == len(host.body)
        assert seen.phases == ["verifying", "done"]
        assert seen[-1].done == len(host.body)

    async def test_damage_with_its_time_set_back_is_found_before_a_load(
        self, store: Store, host: Host
    ) -> None:
        ref = at_url(host.url, host.body)
        flip((await store.pull(ref)).main, 1_000_000, keep_times=True)
        with pytest.raises(NotVerified):
            store.check(ref)
        assert store.list() == ()

    async def test_damage_is_put_aside_and_named(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        flip((await store.pull(ref)).main, 1_000_000, keep_times=False)
        with pytest.raises(NotVerified) as caught:
            await store.verify(ref)
        assert caught.value.exit_code == 4
        assert ref.variant.main.sha256 in str(caught.value)
        assert store.list() == ()

    async def test_absent_is_missing(self, store: Store, host: Host) -> None:
        with pytest.raises(ModelMissing):
            await store.verify(at_url(host.url, host.body))


class TestRemove:
    async def test_it_frees_the_bytes_and_partials(self, store: Store, paths: Paths, host: Host) -> None:
        ref = at_url(host.url, host.body)
        await store.pull(ref)
        assert store.remove("tiny:F32") >= len(host.body)
        assert store.list() == ()
        assert not (paths.models / "tiny").exists()

        host.acts = [acts.cut(MIB), acts.status(404)]
        with pytest.raises(Exception, match="404"):
            await store.pull(ref)
        assert store.remove(ref) >= MIB
        assert store.leftovers() == ()

    def test_nothing_to_remove_is_said(self, store: Store) -> None:
        with pytest.raises(ModelMissing):
            store.remove("tiny:F32")


class TestFileSource:
    async def test_a_file_here_is_linked_not_copied(self, store: Store, tmp_path: Path) -> None:
        mine = tmp_path / "mine.gguf"
        mine.write_bytes(gguf())
        stored = await store.pull(made(FileSource(kind="file", path=str(mine)), pin("t.gguf", gguf())))
        assert stored.main.samefile(mine)
        assert store.remove("tiny:F32") < MIB
        assert mine.read_bytes() == gguf()

    async def test_where_it_can_not_be_linked_it_is_copied(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refuse)
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "t.gguf").write_bytes(gguf())
        stored = await store.pull(made(FileSource(kind="file", path=str(folder)), pin("t.gguf", gguf())))
        assert not stored.main.samefile(folder / "t.gguf")
        assert stored.main.read_bytes() == gguf()

    async def test_a_wrong_file_stays_where_it_is(self, store: Store, tmp_path: Path) -> None:
        mine = tmp_path / "mine.gguf"
        mine.write_bytes(gguf(seed=2))
        with pytest.raises(NotVerified, match="not the file"):
            await store.pull(made(FileSource(kind="file", path=str(mine)), pin("t.gguf", gguf())))
        assert mine.read_bytes() == gguf(seed=2)
        assert store.leftovers() == ()

    async def test_no_such_file(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(ModelMissing):
            await store.pull(made(FileSource(kind="file", path=str(tmp_path / "x")), pin("t.gguf", gguf())))


class TestRoom:
    def test_the_reserve_is_two_gib_or_five_percent_of_a_small_disk(self) -> None:
        assert disk.reserve(1000 * GIB) == 2 * GIB
        assert disk.reserve(20 * GIB) == GIB

    async def test_too_little_room_is_refused_before_any_request(
        self, store: Store, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(disk, "usage", lambda _: (100 * MIB, 7 * MIB))
        with pytest.raises(DiskFull) as caught:
            await store.pull(at_url(host.url, gguf(3 * MIB)))
        assert "1.0 MiB more is needed" in caught.value.message
        assert host.requests == []

    async def test_what_has_arrived_counts(
        self, store: Store, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = at_url(host.url, host.body)
        host.acts = [acts.cut(2 * MIB), acts.status(404)]
        with pytest.raises(Exception, match="404"):
            await store.pull(ref)
        monkeypatch.setattr(disk, "usage", lambda _: (100 * MIB, 6 * MIB))
        assert (await store.pull(ref)).main.read_bytes() == host.body

    async def test_a_disk_that_fills_up_keeps_the_partial(
        self, small_disk: Paths, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = Store(small_disk, limits=QUICK)
        monkeypatch.setattr(disk, "usage", lambda _: (100 * GIB, 50 * GIB))  # the first look is deceived
        with pytest.raises(DiskFull) as caught:
            await store.pull(at_url(host.url, host.body))
        assert "still to come" in caught.value.message
        assert "what has arrived is kept" in str(caught.value)
        (part,) = files_in(small_disk.models)
        assert 0 < part.stat().st_size < len(host.body)
        assert list((small_disk.models / ".locks").glob("*.json")) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Paths]:
    """Folders on a file system of two MiB."""
    with small_file_system(tmp_path / "disk", "2m") as paths:
        yield paths
