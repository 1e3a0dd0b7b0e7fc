"""Damage is remembered until it is mended, and said where the disk takes no word of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import FileIO
from pathlib import Path

import pytest

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError, DownloadError, ModelMissing, NotVerified
from appliance.paths import Paths
from appliance.store import Store, Stored, layout, partlog, records, remains
from appliance.store.layout import Layout
from tests.store import server as acts
from tests.store.disks import small_file_system
from tests.store.helpers import MIB, QUICK, at_url, flip, made, pin
from tests.store.server import Host

CHUNK = 128 << 10


@pytest.fixture
def store(paths: Paths) -> Store:
    """A store with small chunks."""
    return Store(paths, limits=replace(QUICK, chunk=CHUNK, segment=4 * CHUNK))


@pytest.fixture
def ref(host: Host) -> ModelRef:
    return at_url(host.url, host.body)


async def damaged_again(store: Store, ref: ModelRef) -> NotVerified:
    """Verify says so by its name and by its pin."""
    with pytest.raises(NotVerified) as caught:
        await store.verify(ref.ref)
    with pytest.raises(NotVerified) as second:
        await store.verify(ref)
    assert str(second.value) == str(caught.value)
    assert caught.value.exit_code == 4
    assert "models repair tiny:F32" in (caught.value.hint or "")
    return caught.value


class TestRemembered:
    async def test_until_a_repair(self, store: Store, host: Host, ref: ModelRef) -> None:
        flip((await store.pull(ref)).main, 5 * CHUNK)
        with pytest.raises(NotVerified) as caught:
            await store.verify(ref)
        for _ in range(2):
            assert (await damaged_again(store, ref)).damage == caught.value.damage
        assert store.holdings()[ref.ref].damaged
        assert [item.action for item in store.damaged()[ref.ref]] == ["partial"]
        host.acts = [acts.status(404)]
        with pytest.raises(DownloadError):
            await store.repair(ref)
        await damaged_again(store, ref)
        assert (await store.repair(ref)).fetched == CHUNK
        assert store.damaged() == {}
        assert not store.holdings()[ref.ref].damaged
        assert (await store.verify(ref.ref)).unrecorded is None

    async def test_in_quarantine_too_and_until_it_is_removed(self, store: Store, ref: ModelRef) -> None:
        main = (await store.pull(ref)).main
        main.write_bytes(bytes(2 * MIB))
        with pytest.raises(NotVerified):
            await store.verify(ref)
        error = await damaged_again(store, ref)
        assert error.damage[0]["action"] == "quarantined"
        store.remove(ref)
        assert store.damaged() == {}
        with pytest.raises(ModelMissing):
            await store.verify(ref.ref)

    async def test_a_file_that_somebody_deleted(self, store: Store, ref: ModelRef) -> None:
        (await store.pull(ref)).main.unlink()
        assert [item.kind for item in store.damaged()[ref.ref]] == ["missing"]
        for _ in range(2):
            with pytest.raises(ModelMissing, match="no longer whole"):
                await store.verify(ref.ref)

    @pytest.mark.parametrize(
        "text", ["", "{", "[" * 100_000, '{"version": 99}', '{"version": 1, "files": 3}']
    )
    async def test_a_record_that_can_not_be_understood(self, store: Store, ref: ModelRef, text: str) -> None:
        main = (await store.pull(ref)).main
        (main.parent / layout.RECORD).write_text(text)
        assert "can't be understood" in str(await damaged_again(store, ref))
        assert (await store.repair(ref)).fetched == 0
        assert store.damaged() == {}

    @pytest.mark.parametrize("text", ["{", '{"damage": [{"kind": "odd"}]}', "[" * 100_000])
    async def test_a_marker_that_can_not_be_understood(self, store: Store, ref: ModelRef, text: str) -> None:
        main = (await store.pull(ref)).main
        flip(main)
        with pytest.raises(NotVerified):
            await store.verify(ref)
        (main.parent / layout.DAMAGED).write_text(text)
        await damaged_again(store, ref)

    async def test_an_old_marker_says_nothing_against_a_newer_record(
        self, store: Store, ref: ModelRef
    ) -> None:
        main = (await store.pull(ref)).main
        (main.parent / layout.DAMAGED).write_text(json.dumps({"v": 1, "time": 1.0, "damage": []}))
        assert store.damaged() == {}
        assert (await store.verify(ref.ref)).stored.main == main

    async def test_a_folder_at_its_name_is_told_and_left(self, store: Store, ref: ModelRef) -> None:
        main = (await store.pull(ref)).main
        main.unlink()
        main.mkdir()
        (main / "mine").write_text("mine")
        with pytest.raises(NotVerified) as caught:
            await store.verify(ref)
        assert "is a folder, not a regular file" in (caught.value.cause or "")
        assert f"Move {main} away first" in (caught.value.hint or "")
        assert caught.value.damage[0]["action"] == "left"
        assert (main / "mine").read_text() == "mine"
        assert store.leftovers() == ()
        assert [item.action for item in store.damaged()[ref.ref]] == ["left"]
        with pytest.raises(ApplianceError, match="not a regular file") as caught_too:
            await store.repair(ref)
        assert "away" in (caught_too.value.hint or "")

    @pytest.mark.parametrize("made", ["missing", "covered"])
    async def test_what_comes_back_as_it_was_is_whole_again(
        self, store: Store, host: Host, ref: ModelRef, made: str
    ) -> None:
        main = (await store.pull(ref)).main
        main.unlink()
        sent = host.sent
        if made == "covered":
            os.mkfifo(main)
        with pytest.raises(ApplianceError):
            await store.verify(ref)
        assert list(store.damaged()) == [ref.ref]
        main.unlink(missing_ok=True)
        main.write_bytes(host.body)
        assert (await store.verify(ref)).n_bytes == len(host.body)
        assert store.damaged() == {}
        assert host.sent == sent

    @pytest.mark.parametrize("end", [layout.PART, layout.LOG])
    async def test_a_folder_at_the_name_of_a_partial_file(
        self, store: Store, ref: ModelRef, paths: Paths, end: str
    ) -> None:
        taken = Layout(paths.models).folder(ref) / f"tiny.gguf{end}"
        taken.mkdir(parents=True)
        (taken / "mine").write_text("mine")
        with pytest.raises(ApplianceError) as caught:
            await store.pull(ref)
        assert str(taken) in str(caught.value)
        assert "away" in (caught.value.hint or "")
        store.prune(partials=True, dry_run=False)
        assert (taken / "mine").read_text() == "mine"


class TestADiskThatTakesNothing:
    @pytest.fixture(params=[errno.ENOSPC, errno.EROFS, errno.EACCES], ids=["full", "read-only", "no-right"])
    def refuse(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
        """From now on every document and log is refused."""

        def now() -> None:
            def write(*_: object, **__: object) -> None:
                raise OSError(request.param, os.strerror(request.param))

            monkeypatch.setattr(layout, "write_json", write)
            monkeypatch.setattr(partlog, "write", write)

        return now

    async def test_what_is_good_stays_so_and_loads(
        self, store: Store, ref: ModelRef, refuse: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stored = await store.pull(ref)
        os.utime(stored.main, ns=(1, 1))
        refuse()
        assert store.check(ref).files[0].mtime_ns == 1
        with monkeypatch.context() as patch:
            patch.setattr("appliance.store.chunks.digests_of", None)  # a second load reads nothing
            assert store.check(ref).main == stored.main
        result = await store.verify(ref)
        assert result.unrecorded is not None
        assert result.n_bytes == stored.size
        assert (await store.pull(ref)).main == stored.main

    @pytest.mark.parametrize("keep_times", [False, True])
    async def test_what_is_damaged_is_told_and_never_used(
        self, store: Store, ref: ModelRef, refuse: Callable[[], None], keep_times: bool
    ) -> None:
        stored = await store.pull(ref)
        flip(stored.main, keep_times=keep_times)
        refuse()
        for _ in range(2):
            with pytest.raises(NotVerified) as caught:
                await store.verify(ref)
            assert caught.value.exit_code == 4
        assert store.damaged() or store.list()
        with pytest.raises(ApplianceError):
            store.check(ref)

    async def test_the_way_back_once_there_is_room(
        self, store: Store, host: Host, ref: ModelRef, refuse: Callable[[], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        flip((await store.pull(ref)).main)
        with monkeypatch.context():
            refuse()
            with pytest.raises(NotVerified, match="it stays where it is"):
                await store.verify(ref)
            monkeypatch.undo()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        sent = host.sent
        assert (await store.repair(ref)).stored.main.read_bytes() == host.body
        assert host.sent - sent == CHUNK


def test_bytes_that_rot_under_a_record_that_can_not_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change time is that of the record, so only this process can know."""
    path = tmp_path / "a.gguf"
    path.write_bytes(b"x")
    file = records.stored_file(path, pin("a.gguf", b"x"))
    assert records.unchanged(file)
    records.distrust(file)
    assert records.rests(file)
    assert not records.unchanged(file)
    records.trust([file])
    assert records.unchanged(file)


class TestOneBadFolder:
    @pytest.fixture
    async def two(self, store: Store, ref: ModelRef, host: Host) -> tuple[Stored, Stored]:
        other = made(ref.variant.source, pin("other.gguf", host.body), model_id="other")
        return await store.pull(ref), await store.pull(other)

    @pytest.fixture
    def shut(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
        """Folders that the system does not open, for root, too."""
        shut = set[str]()
        scandir, listdir, read_json = os.scandir, os.listdir, layout.read_json

        def refused(path: object) -> None:
            if str(path) in shut or any(str(path).startswith(f"{one}/") for one in shut):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))

        def scan(path: str = ".") -> object:
            refused(path)
            return scandir(path)

        def names(path: str = ".") -> list[str]:
            refused(path)
            return listdir(path)

        def read(path: Path) -> object:
            return None if any(one in str(path) for one in shut) else read_json(path)

        monkeypatch.setattr(os, "scandir", scan)
        monkeypatch.setattr(os, "listdir", names)
        monkeypatch.setattr(layout, "read_json", read)
        return lambda path: shut.add(str(path))

    async def test_a_variant_that_may_not_be_read_hides_no_other(
        self, store: Store, two: tuple[Stored, Stored], shut: Callable[[Path], None]
    ) -> None:
        shut(two[0].main.parent)
        assert [stored.ref for stored in store.list()] == ["other:F32"]
        (item,) = store.damaged()["tiny:F32"]
        assert (item.kind, item.action) == ("forbidden", "left")
        assert store.holdings()["tiny:F32"].damaged
        assert store.prune(partials=True, quarantine=True, dry_run=False) == ()
        assert store.remove("other:F32") > 0
        with pytest.raises(NotVerified, match="may not be read by this user"):
            await store.verify("tiny:F32")

    async def test_nor_does_the_folder_of_an_id(
        self, store: Store, two: tuple[Stored, Stored], shut: Callable[[Path], None]
    ) -> None:
        shut(two[0].main.parent.parent)
        assert [stored.ref for stored in store.list()] == ["other:F32"]
        assert list(store.damaged()) == ["tiny"]
        with pytest.raises(NotVerified, match="may not be read"):
            await store.verify("tiny")

    async def test_a_pull_into_it_is_refused_in_words(
        self, store: Store, ref: ModelRef, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        main = (await store.pull(ref)).main
        (main.parent / layout.RECORD).unlink()
        real = Path.exists

        def refused(path: Path) -> bool:
            if path == main:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(Path, "exists", refused)
        with pytest.raises(ApplianceError, match=r"tiny\.gguf can't be written") as caught:
            await store.pull(ref)
        assert caught.value.cause == "This user has no right to write there."

    async def test_the_whole_folder_is_one_clear_error(
        self, store: Store, two: tuple[Stored, Stored], paths: Paths, shut: Callable[[Path], None]
    ) -> None:
        shut(paths.models)
        for call in (store.list, store.holdings, store.damaged, lambda: store.remove("tiny:F32")):
            with pytest.raises(ApplianceError, match="can't be read") as caught:
                call()
            assert "APPLIANCE_HOME" in (caught.value.hint or "")

    async def test_one_refusal_keeps_nothing_else_from_being_pruned(
        self, store: Store, two: tuple[Stored, Stored], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = Path.unlink

        def picky(path: Path, missing_ok: bool = False) -> None:
            if path.name == "other.gguf":
                raise PermissionError(errno.EACCES, "Permission denied")
            real(path, missing_ok)

        monkeypatch.setattr(Path, "unlink", picky)
        with pytest.raises(ApplianceError, match=r"other\.gguf can't be removed"):
            store.prune(unused_s=0.0, dry_run=False)
        assert not two[0].main.exists()


class TestWhatIsNotOurs:
    async def test_files_of_the_user_stay_whatever_is_pruned(self, store: Store, ref: ModelRef) -> None:
        main = (await store.pull(ref)).main
        flip(main, 5 * CHUNK)
        with pytest.raises(NotVerified):
            await store.verify(ref)
        mine = [main.parent / name for name in ("notes.txt", "tiny.gguf.bak", ".hidden", "d.part/x")]
        mine[-1].parent.mkdir()
        for path in mine:
            path.write_text("mine")
        (item,) = store.prune(partials=True)
        assert (item.kind, item.about) == ("damaged", "tiny:F32, damaged; a repair fetches only what differs")
        assert store.prune(partials=True, dry_run=False) == (item,)
        assert all(path.read_text() == "mine" for path in mine)
        assert set(store.strangers()) == {*mine[:-1], mine[-1].parent}
        assert sorted(main.parent.iterdir()) == sorted(store.strangers())
        assert store.damaged() == {}

    async def test_an_unused_model_goes_without_them(self, store: Store, ref: ModelRef) -> None:
        main = (await store.pull(ref)).main
        mine = main.parent / "notes.txt"
        mine.write_text("mine")
        store.prune(unused_s=0.0, dry_run=False)
        assert list(main.parent.iterdir()) == [mine]

    def test_a_quarantined_folder_counts_with_all_that_is_in_it(self, store: Store, paths: Paths) -> None:
        folder = paths.models / ".quarantine" / "old"
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "x").write_bytes(b"x" * MIB)
        (item,) = store.prune(quarantine=True)
        assert item.size >= MIB
        assert store.prune(quarantine=True, dry_run=False) == (item,)
        assert not folder.exists()

    @pytest.mark.parametrize(
        ("name", "ours"),
        [(".record.json.ab12cd34", True), (".t.gguf.chunks.ab12cd34", True), (".t.gguf.part.ab12cd34", True),
         (".import-0011aabb-t.gguf", True), (".notes.markdown", False), (".part", False)],
    )  # fmt: skip
    def test_ours_by_name(self, tmp_path: Path, name: str, ours: bool) -> None:
        folder = tmp_path / "tiny" / "F32-0"
        folder.mkdir(parents=True)
        (folder / name).write_text("")
        assert (remains.foreign(folder) == []) == ours


async def test_a_full_disk_of_its_own_is_freed_by_removing(full_disk: Paths, host: Host) -> None:
    store = Store(full_disk, limits=replace(QUICK, chunk=CHUNK, segment=4 * CHUNK))
    ref = at_url(host.url, host.body)
    await store.pull(ref)
    fill(full_disk.models)
    with pytest.raises(ApplianceError, match="can't be written"):
        await store.pull(made(ref.variant.source, pin("o.gguf", host.body), model_id="other"))
    assert (await store.verify(ref)).n_bytes == len(host.body)
    flip(store.list()[0].main)
    with pytest.raises(NotVerified):
        await store.verify(ref)
    assert list(store.damaged()) == ["tiny:F32"]
    assert store.remove(ref) >= len(host.body)
    assert list(full_disk.models.glob("[!.]*")) == []


def fill(folder: Path) -> None:
    """Take all that is left of the disk."""
    with (folder.parent / "fill").open("wb", buffering=0) as file:
        for step in (1 << 20, 4096, 1):
            while took(file, step):
                pass


def took(file: FileIO, n_bytes: int) -> bool:
    try:
        return file.write(bytes(n_bytes)) > 0
    except OSError as error:
        return error.errno != errno.ENOSPC


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Paths]:
    """Folders on a file system of 6 MiB."""
    with small_file_system(tmp_path / "disk", "6m") as paths:
        yield paths
