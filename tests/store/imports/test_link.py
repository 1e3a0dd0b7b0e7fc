"""Taking in by hard link: no room, and nobody's file is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from appliance.errors import (
    NotVerified,
    UsageError,
)
from appliance.store import chunks, layout
from appliance.store.partfile import PartFile
from appliance.store.taking import reason
from appliance.store.threads import StopFlag
from tests.store.helpers import MIB, Seen, files_in
from tests.store.imports.house import BODY, Disk, change, ref_of, state_of


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
