"""A pull of an entry of kind `file`: verified in place, then a second name, with what each chunk was."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.catalog import FileSource, ModelRef
from appliance.errors import DownloadError, GgufError, NotVerified
from appliance.store import Store, chunks, layout
from appliance.store.layout import Layout
from tests.store.helpers import MIB, gguf, made, pin
from tests.store.imports.house import BODY, Disk, put, state_of


def ref_of(path: Path, body: bytes = BODY) -> ModelRef:
    return made(FileSource(kind="file", path=str(path)), pin("tiny.gguf", body))


async def test_the_digests_of_its_chunks_are_kept(here: Disk, theirs: Path) -> None:
    ref = ref_of(theirs)
    stored = await here.store.pull(ref)
    assert stored.main.samefile(theirs)
    file = ref.variant.main
    known = chunks.read(layout.chunks(here.where.folder(ref), file), file.size, file.sha256)
    assert known is not None
    assert len(known.xxh3) == 2


async def test_a_page_of_another_size_is_called_a_page(store: Store, theirs: Path) -> None:
    put(theirs, b"<html>log in</html>")
    with pytest.raises(DownloadError, match="page"):
        await store.pull(ref_of(theirs))


@pytest.mark.parametrize("n_bytes", [9 * MIB, 8 * MIB], ids=["same size", "another size"])
async def test_other_bytes_are_refused_and_stay(store: Store, theirs: Path, n_bytes: int) -> None:
    put(theirs, gguf(n_bytes, seed=7))
    before = state_of(theirs)
    with pytest.raises(NotVerified, match="not the file that the catalog pins"):
        await store.pull(ref_of(theirs))
    assert state_of(theirs) == before
    assert store.list() == ()


async def test_a_broken_header_is_told_before_anything_is_linked(here: Disk, theirs: Path) -> None:
    broken = gguf(MIB, tensor_bytes=8 * MIB)
    put(theirs, broken)
    with pytest.raises(GgufError, match="shorter"):
        await here.store.pull(ref_of(theirs, broken))
    assert not Layout(here.where.root).quarantine.exists()
    assert list(here.where.root.rglob("*.gguf")) == []
