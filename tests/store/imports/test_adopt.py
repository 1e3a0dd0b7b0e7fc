"""What is refused, sets of files, manners, and a real model."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from appliance.catalog import File, FileSource, ModelRef, WheelSource, load
from appliance.errors import (
    DownloadError,
    GgufError,
    ModelError,
    ModelMissing,
    NotVerified,
    UsageError,
)
from appliance.store import adopt, chunks
from appliance.store.lock import Lock
from tests.store.helpers import MIB, Seen, files_in, gguf, made, pin
from tests.store.imports.house import BODY, Disk, put, ref_of, state_of


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
