"""Taking in files that are here already: link, reference, copy; and that nobody's file is ever touched."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.catalog import File, FileSource, ModelRef, WheelSource, load
from appliance.errors import (
    DiskFull,
    DownloadError,
    GgufError,
    ModelError,
    ModelMissing,
    NotVerified,
    UsageError,
)
from appliance.paths import Paths
from appliance.store import Store, adopt, chunks, disk, layout
from appliance.store.layout import Layout
from appliance.store.lock import Lock
from appliance.store.partfile import PartFile
from appliance.store.taking import Adopted, How, reason
from appliance.store.threads import StopFlag
from appliance.store.types import OnProgress, no_progress
from appliance.units import GIB
from tests.store.helpers import MIB, Seen, files_in, gguf, made, pin

BODY = gguf(9 * MIB)  # more than one chunk


def put(path: Path, body: bytes) -> None:
    """A new file in place of the old one."""
    path.unlink(missing_ok=True)
    path.write_bytes(body)


def change(path: Path, *, at: int = MIB, keep_times: bool = True) -> None:
    """Write into a file; `keep_times` hides it from everything but a hash and the change time."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\0other\0")
    if keep_times:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


class Disk:
    """A store and how to ask it."""

    def __init__(self, paths: Paths, store: Store) -> None:
        self.where = Layout(paths.models)
        self.store = store

    async def adopt(
        self, ref: ModelRef, *files: Path | None, how: How | None = None, seen: OnProgress = no_progress
    ) -> Adopted:
        return await self.store.adopt(ref, files, how, seen)

    def written(self) -> int:
        """Bytes that the store takes on its disk beyond names of files that others have, too."""
        found = [p.lstat() for p in self.where.root.rglob("*") if p.is_file() and not p.is_symlink()]
        return sum(stat.st_blocks * 512 for stat in found if stat.st_nlink == 1)


@pytest.fixture
def here(paths: Paths, store: Store) -> Disk:
    return Disk(paths, store)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """The file of another program, on the disk of the store."""
    path = tmp_path / "theirs" / "tiny.gguf"
    path.parent.mkdir()
    path.write_bytes(BODY)
    return path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system."""
    folder = Path(f"/dev/shm/appliance-test-{os.getpid()}-{tmp_path.name}")
    if not Path("/dev/shm").is_dir() or Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def ref_of(body: bytes = BODY) -> ModelRef:
    return made(FileSource(kind="file", path="/nowhere/tiny.gguf"), pin("tiny.gguf", body))


def state_of(path: Path) -> tuple[bytes, int, int, int]:
    """What must not change: the bytes, the inode, the time and the mode of a file."""
    stat = path.stat()
    return path.read_bytes(), stat.st_ino, stat.st_mtime_ns, stat.st_mode


class TestLink:
    async def test_is_the_first_choice_and_takes_no_room(self, here: Disk, theirs: Path) -> None:
        before = state_of(theirs)
        done = await here.adopt(ref_of(), theirs)
        assert (done.how, done.why) == ("link", None)
        assert done.stored is not None
        assert done.stored.main.samefile(theirs)
        assert not done.stored.files[0].referenced
        assert here.written() < 64 * 1024  # record and digests
        assert state_of(theirs) == before
        assert (await here.store.require(ref_of())).main == done.stored.main

    async def test_every_byte_is_read_first(self, here: Disk, theirs: Path) -> None:
        seen = Seen()
        await here.adopt(ref_of(), theirs, seen=seen)
        assert seen.phases == ["verifying", "done"]
        assert seen[-1].done == len(BODY)
        assert {item.total for item in seen} == {len(BODY)}

    async def test_what_each_chunk_was_is_kept(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs)
        ref = ref_of()
        file = ref.variant.main
        known = chunks.read(layout.chunks(here.where.folder(ref), file), file.size, file.sha256)
        assert known == chunks.digests_of(theirs, StopFlag(), lambda _: None)
        assert known is not None
        assert len(known.xxh3) == 2

    async def test_follows_a_link_to_the_bytes(self, here: Disk, theirs: Path) -> None:
        blob = theirs.with_name("blob")
        os.rename(theirs, blob)
        os.symlink("blob", theirs)
        done = await here.adopt(ref_of(), theirs)
        assert done.stored is not None
        assert not done.stored.main.is_symlink()
        assert done.stored.main.samefile(blob)

    async def test_their_name_is_deleted_and_the_model_stays(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs)
        os.unlink(theirs)
        assert (await here.store.require(ref_of())).main.read_bytes() == BODY

    async def test_their_program_writes_into_it_and_it_is_not_used(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs)
        change(theirs, at=5 * MIB)
        before = state_of(theirs)
        with pytest.raises(NotVerified):
            await here.store.require(ref_of())
        assert state_of(theirs) == before
        assert here.store.list() == ()

    async def test_removing_the_model_leaves_their_file(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs)
        assert here.store.remove("tiny:F32") < len(BODY)  # the bytes stay with the other name
        assert state_of(theirs)[0] == BODY

    async def test_an_older_file_without_record_makes_way_and_is_kept(self, here: Disk, theirs: Path) -> None:
        folder = here.where.folder(ref_of())
        folder.mkdir(parents=True)
        (folder / "tiny.gguf").write_bytes(b"what is this")
        done = await here.adopt(ref_of(), theirs)
        assert done.stored is not None
        assert done.stored.main.read_bytes() == BODY
        assert [p.read_bytes() for p in here.where.quarantine.glob("*.gguf")] == [b"what is this"]

    async def test_a_download_that_was_under_way_is_dropped(self, here: Disk, theirs: Path) -> None:
        ref = ref_of()
        part = PartFile(here.where.folder(ref), ref.variant.main)
        part.open(StopFlag(), lambda _: None)
        part.write(0, BODY[:MIB])
        part.close()
        await here.adopt(ref, theirs)
        assert files_in(here.where.root, (".part", ".log")) == []

    async def test_twice_is_once(self, here: Disk, theirs: Path) -> None:
        first = await here.adopt(ref_of(), theirs)
        again = await here.adopt(ref_of(), theirs)
        assert again.how is None
        assert again.stored == first.stored

    async def test_names_of_a_killed_import_go(self, here: Disk, theirs: Path) -> None:
        folder = here.where.folder(ref_of())
        folder.mkdir(parents=True)
        os.link(theirs, folder / ".import-0000-tiny.gguf")
        await here.adopt(ref_of(), theirs)
        assert sorted(p.name for p in folder.iterdir()) == ["record.json", "tiny.gguf", "tiny.gguf.chunks"]

    async def test_gets_its_record_back_from_its_own_file(self, here: Disk, theirs: Path) -> None:
        done = await here.adopt(ref_of(), theirs)
        assert done.stored is not None
        (here.where.folder(ref_of()) / layout.RECORD).unlink()
        again = await here.adopt(ref_of(), done.stored.main)
        assert again.stored is not None
        assert again.stored.main.read_bytes() == BODY

    async def test_asked_for_where_it_can_t_be(self, here: Disk, elsewhere: Path) -> None:
        path = elsewhere / "tiny.gguf"
        path.write_bytes(BODY)
        with pytest.raises(UsageError, match="another disk") as caught:
            await here.adopt(ref_of(), path, how="link")
        assert "--how reference" in str(caught.value)
        assert here.store.list() == ()

    @pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs another user on Linux")
    def test_of_another_user_s_file_is_refused_in_words_of_people(self) -> None:
        if Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
            pytest.skip("this system lets everybody link")
        with tempfile.TemporaryDirectory() as name:
            Path(name).chmod(0o777)
            theirs = Path(name) / "theirs.gguf"
            theirs.write_bytes(BODY)
            theirs.chmod(0o444)
            code = (
                "import os, sys; os.setgid(65534); os.setuid(65534)\n"
                "try: os.link(sys.argv[1], sys.argv[2])\n"
                "except OSError as error: print(error.errno)"
            )
            command = [sys.executable, "-I", "-S", "-c", code, str(theirs), f"{name}/link"]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert "another user's file" in reason(OSError(int(ran.stdout), ""))


class TestReference:
    async def test_on_another_disk_nothing_is_copied(self, here: Disk, elsewhere: Path) -> None:
        path = elsewhere / "sha256-of-something"
        path.write_bytes(BODY)
        before = state_of(path)
        done = await here.adopt(ref_of(), path)
        assert (done.how, done.why) == ("reference", "it is on another disk")
        assert done.stored is not None
        assert done.stored.main == path
        assert done.stored.files[0].referenced
        assert done.stored.files[0].name == "tiny.gguf"
        assert here.written() < 64 * 1024
        assert state_of(path) == before
        assert (await here.store.require(ref_of())) == done.stored
        assert [s.main for s in Store(_paths_of(here)).list()] == [path]  # from the record alone

    async def test_the_folder_holds_no_model(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs, how="reference")
        names = sorted(p.name for p in here.where.folder(ref_of()).iterdir())
        assert names == ["record.json", "tiny.gguf.chunks"]

    async def test_replaced_by_other_bytes_it_is_not_used(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs, how="reference")
        put(theirs, gguf(9 * MIB, seed=2))
        before = state_of(theirs)
        with pytest.raises(NotVerified):
            await here.store.require(ref_of())
        assert state_of(theirs) == before
        assert not here.where.quarantine.exists()

    async def test_one_byte_changed_with_the_time_set_back(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs, how="reference")
        change(theirs)
        with pytest.raises(NotVerified):
            await here.store.require(ref_of())

    async def test_written_anew_with_the_same_bytes_it_is_used(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs, how="reference")
        put(theirs, BODY)
        stored = await here.store.require(ref_of())
        assert stored.files[0].referenced
        assert stored.files[0].inode == state_of(theirs)[1]
        assert stored.main == theirs

    async def test_gone_says_where_it_was_and_comes_back(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs, how="reference")
        away = theirs.parent.rename(theirs.parent.with_name("unplugged"))
        with pytest.raises(ModelMissing) as caught:
            await here.store.require(ref_of())
        assert str(theirs) in str(caught.value)
        away.rename(theirs.parent)
        assert (await here.store.require(ref_of())).main == theirs

    async def test_removing_the_model_deletes_only_the_record(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs, how="reference")
        before = state_of(theirs)
        here.store.remove("tiny:F32")
        assert state_of(theirs) == before
        assert here.store.list() == ()
        assert here.where.folders() == ()

    async def test_verify_reads_it_where_it_is(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs, how="reference")
        assert (await here.store.verify(ref_of())).n_bytes == len(BODY)
        with theirs.open("r+b") as file:
            file.truncate(MIB)
        before = state_of(theirs)
        with pytest.raises(NotVerified):
            await here.store.verify(ref_of())
        assert state_of(theirs) == before

    async def test_becomes_a_copy_when_asked(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs, how="reference")
        done = await here.adopt(ref_of(), theirs, how="copy")
        assert done.how == "copy"
        os.unlink(theirs)
        assert (await here.store.require(ref_of())).main.read_bytes() == BODY

    async def test_to_a_file_of_the_store_is_refused(self, here: Disk, theirs: Path) -> None:
        done = await here.adopt(ref_of(), theirs)
        assert done.stored is not None
        (here.where.folder(ref_of()) / layout.RECORD).unlink()
        with pytest.raises(UsageError, match="in the store already"):
            await here.adopt(ref_of(), done.stored.main, how="reference")
        assert done.stored.main.read_bytes() == BODY

    async def test_a_record_with_a_path_that_is_not_absolute_is_none(self, here: Disk, theirs: Path) -> None:
        await here.adopt(ref_of(), theirs, how="reference")
        record = here.where.folder(ref_of()) / layout.RECORD
        record.write_text(record.read_text().replace(str(theirs), "tiny.gguf"))
        assert here.store.list() == ()


class TestCopy:
    async def test_has_bytes_of_its_own(self, here: Disk, theirs: Path) -> None:
        done = await here.adopt(ref_of(), theirs, how="copy")
        assert done.stored is not None
        assert done.stored.main.read_bytes() == BODY
        assert not done.stored.main.samefile(theirs)
        assert files_in(here.where.root, (".part", ".log")) == []
        assert await here.store.require(ref_of()) == done.stored

    async def test_goes_on_from_a_partial_file(self, here: Disk, theirs: Path) -> None:
        ref = ref_of()
        part = PartFile(here.where.folder(ref), ref.variant.main)
        part.open(StopFlag(), lambda _: None)
        part.write(0, BODY[: 3 * MIB])
        part.close()
        done = await here.adopt(ref, theirs, how="copy")
        assert done.stored is not None
        assert done.stored.main.read_bytes() == BODY

    async def test_wrong_bytes_of_a_partial_file_are_replaced(self, here: Disk, theirs: Path) -> None:
        ref = ref_of()
        part = PartFile(here.where.folder(ref), ref.variant.main)
        part.open(StopFlag(), lambda _: None)
        part.write(0, b"\1" * (8 * MIB))
        part.close()
        done = await here.adopt(ref, theirs, how="copy")
        assert done.stored is not None
        assert done.stored.main.read_bytes() == BODY

    async def test_needs_room(self, here: Disk, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(disk, "usage", lambda _: (100 * GIB, 2 * GIB))
        with pytest.raises(DiskFull):
            await here.adopt(ref_of(), theirs, how="copy")
        assert (await here.adopt(ref_of(), theirs)).how == "link"  # which needs none

    async def test_of_a_full_disk_keeps_their_file_and_says_what_lacks(
        self, here: Disk, theirs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(handle: int, data: bytes, at: int) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(DownloadError):
            await here.adopt(ref_of(), theirs, how="copy")
        assert state_of(theirs)[0] == BODY


class TestNotWhatItSays:
    async def test_other_bytes_are_not_taken(self, here: Disk, theirs: Path) -> None:
        other = ref_of(gguf(9 * MIB, seed=3))
        with pytest.raises(NotVerified, match="not the file that the catalog pins") as caught:
            await here.adopt(other, theirs)
        assert other.variant.main.sha256 in str(caught.value)
        assert here.where.folders() == ()
        assert state_of(theirs)[0] == BODY

    @pytest.mark.parametrize(
        ("body", "kind", "match"),
        [
            (b"<html>please log in</html>", DownloadError, "page"),
            (b"PK\3\4 a zip", NotVerified, "no GGUF"),
            (b"", NotVerified, "no GGUF|ends"),
            (b"GGUF\3\0\0\0" + b"\xff" * 16, GgufError, "GGUF"),
            (gguf(MIB, tensor_bytes=8 * MIB), GgufError, "shorter"),
        ],
        ids=["page", "zip", "empty", "hostile header", "truncated"],
    )
    async def test_no_model_fails_before_it_is_hashed(
        self, here: Disk, theirs: Path, body: bytes, kind: type[Exception], match: str
    ) -> None:
        put(theirs, body)
        seen = Seen()
        with pytest.raises(kind, match=match):
            await here.adopt(ref_of(), theirs, seen=seen)
        assert max(item.done for item in seen) == 0
        assert here.where.folders() == ()

    async def test_a_pipe_is_not_waited_for(self, here: Disk, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.gguf")
        with pytest.raises(NotVerified, match="not a file"):
            await asyncio.wait_for(here.adopt(ref_of(), tmp_path / "pipe.gguf"), 5)

    async def test_absent(self, here: Disk, tmp_path: Path) -> None:
        with pytest.raises(ModelMissing, match="not there"):
            await here.adopt(ref_of(), tmp_path / "none.gguf")

    async def test_swapped_while_it_is_hashed(
        self, here: Disk, theirs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.link

        def swap(source: str, target: Path) -> None:
            other = theirs.with_name("other")
            other.write_bytes(gguf(9 * MIB, seed=4))
            other.replace(theirs)
            real(source, target)

        monkeypatch.setattr(os, "link", swap)
        with pytest.raises(NotVerified, match="changed while it was imported"):
            await here.adopt(ref_of(), theirs)
        assert here.store.list() == ()
        assert files_in(here.where.root, (".gguf",)) == []

    async def test_a_file_that_grows_all_the_time(
        self, here: Disk, theirs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = chunks.digests_of

        def growing(path: Path, *args: object) -> chunks.ChunkDigests:
            with path.open("ab") as file:
                file.write(b"more")
            return real(path, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(chunks, "digests_of", growing)
        with pytest.raises(NotVerified, match="keeps changing"):
            await here.adopt(ref_of(), theirs)


class TestSets:
    def _set(self, folder: Path, names: tuple[str, str]) -> tuple[ModelRef, list[Path]]:
        bodies = [gguf(MIB, seed=n) for n in (5, 6)]
        paths = [folder / name for name in names]
        for path, body in zip(paths, bodies, strict=True):
            path.write_bytes(body)
        files = [
            File(name=f"m-0000{n}-of-00002.gguf", part=n, size=MIB, sha256=pin("x", body).sha256)
            for n, body in enumerate(bodies, 1)
        ]
        return made(FileSource(kind="file", path="/nowhere"), *files), paths

    async def test_parts_under_other_names_are_linked_under_ours(self, here: Disk, tmp_path: Path) -> None:
        ref, paths = self._set(tmp_path, ("sha256-1", "sha256-2"))
        done = await here.adopt(ref, *paths)
        assert done.stored is not None
        assert [f.path.name for f in done.stored.files] == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
        assert done.stored.main.name == "m-00001-of-00002.gguf"

    async def test_parts_that_an_engine_can_t_find_are_no_reference(self, here: Disk, tmp_path: Path) -> None:
        ref, paths = self._set(tmp_path, ("sha256-1", "sha256-2"))
        with pytest.raises(UsageError, match="by reference") as caught:
            await here.adopt(ref, *paths, how="reference")
        assert "--how copy" in str(caught.value)

    async def test_parts_under_their_names_are_referenced(self, here: Disk, tmp_path: Path) -> None:
        ref, paths = self._set(tmp_path, ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"))
        done = await here.adopt(ref, *paths, how="reference")
        assert done.stored is not None
        assert done.stored.main == paths[0]

    async def test_no_part_is_left_when_the_second_can_t_be_linked(
        self, here: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref, paths = self._set(tmp_path, ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"))
        real, count = os.link, iter(range(9))

        def refuse(source: str, target: Path) -> None:
            if next(count) == 1:
                raise OSError(18, "Invalid cross-device link")
            real(source, target)

        monkeypatch.setattr(os, "link", refuse)
        done = await here.adopt(ref, *paths)
        assert done.how == "reference"
        assert files_in(here.where.root, (".gguf",)) == []

    async def test_a_file_that_is_not_here_waits_for_a_pull(self, here: Disk, tmp_path: Path) -> None:
        ref, paths = self._set(tmp_path, ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"))
        done = await here.adopt(ref, paths[0], None)
        assert done.stored is None
        assert (here.where.folder(ref) / "m-00001-of-00002.gguf").samefile(paths[0])
        assert here.store.list() == ()
        with pytest.raises(UsageError, match="missing here"):
            await here.adopt(ref, paths[0], None, how="reference")


class TestManners:
    async def test_a_cancel_ends_the_hash_and_leaves_nothing(self, here: Disk, theirs: Path) -> None:
        started = asyncio.Event()

        def watch(progress: object) -> None:
            started.set()

        task = asyncio.create_task(here.adopt(ref_of(), theirs, seen=watch))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert here.store.list() == ()
        assert Lock(here.where.lock("tiny:F32")).owner() is None
        assert (await here.adopt(ref_of(), theirs)).how == "link"

    async def test_another_process_at_work_is_named(self, here: Disk, theirs: Path) -> None:
        lock = Lock(here.where.lock("tiny:F32"))
        assert lock.acquire() is None
        try:
            with pytest.raises(ModelError, match=str(os.getpid())):
                await here.adopt(ref_of(), theirs)
        finally:
            lock.release()

    async def test_what_would_be_done_is_known(self, here: Disk, theirs: Path, elsewhere: Path) -> None:
        assert adopt.best_way(theirs, here.where.root) == ("link", None)
        (elsewhere / "x.gguf").write_bytes(BODY)
        assert adopt.best_way(elsewhere / "x.gguf", here.where.root) == ("reference", "it is on another disk")


class TestRealModel:
    async def test_by_link_and_by_reference_and_served_from_there(
        self, here: Disk, smollm2_path: Path, tmp_path: Path
    ) -> None:
        catalog = load()
        ref = catalog.resolve("smollm2-135m-instruct:Q4_1")
        assert isinstance(ref.variant.source, WheelSource)
        theirs = tmp_path / "lmstudio" / "a.gguf"
        theirs.parent.mkdir()
        try:
            os.link(smollm2_path, theirs)
        except OSError:
            shutil.copyfile(smollm2_path, theirs)
        done = await here.adopt(ref, theirs)
        assert done.how == "link"
        assert here.written() < 64 * 1024
        assert (await here.store.require(ref)).main.samefile(theirs)
        here.store.remove(ref)
        done = await here.adopt(ref, theirs, how="reference")
        assert (await here.store.require(ref)).main == theirs
        assert here.written() < 64 * 1024


def _paths_of(here: Disk) -> Paths:
    root = here.where.root.parent.parent
    return Paths(root / "config", root / "data", root / "state", root / "cache", root / "run")
