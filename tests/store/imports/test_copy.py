"""Taking in as a copy, through the partial file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.errors import (
    DiskFull,
    DownloadError,
)
from appliance.store import disk
from appliance.store.partfile import PartFile
from appliance.store.threads import StopFlag
from appliance.units import GIB
from tests.store.helpers import MIB, files_in
from tests.store.imports.house import BODY, Disk, ref_of, state_of


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
