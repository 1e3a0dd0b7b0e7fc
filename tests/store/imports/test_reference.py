"""Taking in by reference: used where it is, and never anything else than what was verified."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.errors import (
    ModelMissing,
    NotVerified,
    UsageError,
)
from appliance.paths import Paths
from appliance.store import Store, layout
from tests.store.helpers import MIB, gguf
from tests.store.imports.house import BODY, Disk, change, put, ref_of, state_of


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


def _paths_of(here: Disk) -> Paths:
    root = here.where.root.parent.parent
    return Paths(root / "config", root / "data", root / "state", root / "cache", root / "run")
