"""A file that is said to be something else than it is: damaged in its cache, or changed since."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.catalog import FileSource
from appliance.errors import NotVerified
from appliance.operations.import_survey import named
from appliance.operations.imports import import_path
from appliance.operations.models import Library
from appliance.paths import Paths
from tests.operations.hubhouse import body, entry, library, sha256
from tests.operations.imports.house import COMMIT, in_hf, in_lmstudio, in_ollama, listing, put, survey

GOOD = body(1)
NAME = "M-Q4_K_M.gguf"


def flipped(raw: bytes) -> bytes:
    """With one bit of its weights changed."""
    return raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:]


def shelf_of(paths: Paths) -> Library:
    return listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, NAME, GOOD))


def untouched(shelf: Library, before: bytes | None) -> bool:
    now = shelf.paths.user_catalog.read_bytes() if shelf.paths.user_catalog.exists() else None
    return shelf.store.list() == () and now == before


class TestOtherThanItsCacheSays:
    async def test_a_blob_of_the_hubs_cache(self, paths: Paths, home: Path) -> None:
        shelf = shelf_of(paths)
        before = paths.user_catalog.read_bytes()
        link = in_hf(home, "Ann/M-GGUF", NAME, flipped(GOOD), blob=sha256(GOOD))
        (found,) = (await survey(shelf, home)).found
        assert found.candidate.catalog_ref == "listed:Q4_K_M"  # so it says
        for model_id in (None, "mine"):
            for what in (found.candidate, link):
                with pytest.raises(NotVerified, match="damaged") as caught:
                    await import_path(shelf, what, id=model_id)
                said = str(caught.value)
                assert sha256(GOOD) in said
                assert sha256(flipped(GOOD)) in said
                assert str(link) in said
                assert "appliance models pull listed:Q4_K_M" in said
        assert untouched(shelf, before)

    async def test_a_blob_of_ollama_that_no_catalog_knows(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        blob = in_ollama(home, "mine:7b", GOOD)
        put(blob, flipped(GOOD))
        (found,) = (await survey(shelf, home)).found
        with pytest.raises(NotVerified, match="damaged") as caught:
            await import_path(shelf, found.candidate)
        assert "Get it again" in (caught.value.hint or "")
        with pytest.raises(NotVerified, match="damaged"):
            await import_path(shelf, blob)  # by its own path
        assert untouched(shelf, None)

    async def test_a_projector_beside_it_counts(self, paths: Paths, home: Path) -> None:
        in_hf(home, "Ann/S", "S-Q4_K_M.gguf", GOOD)
        in_hf(home, "Ann/S", "mmproj-S-f16.gguf", flipped(body(3)), blob=sha256(body(3)))
        shelf = library(paths)
        (found,) = (await survey(shelf, home)).found
        with pytest.raises(NotVerified, match="mmproj-S-f16"):
            await import_path(shelf, found.candidate)
        assert untouched(shelf, None)


class TestOtherThanTheCatalogPins:
    async def test_a_known_name_needs_an_id_of_the_users(self, paths: Paths, home: Path) -> None:
        shelf = shelf_of(paths)
        before = paths.user_catalog.read_bytes()
        path = in_lmstudio(home, f"Ann/M-GGUF/{NAME}", flipped(GOOD))
        (found,) = (await survey(shelf, home)).found
        for what in (found.candidate, path):
            with pytest.raises(NotVerified, match=r"other bytes than the catalog pins for Ann/M-GGUF/M-Q4"):
                await import_path(shelf, what)
        assert untouched(shelf, before)
        done = await import_path(shelf, path, id="mine")
        assert done.ref.ref == "mine:Q4_K_M"
        assert isinstance(done.ref.variant.source, FileSource)
        assert done.ref.variant.main.sha256 == sha256(flipped(GOOD))

    async def test_a_true_file_of_another_commit_is_no_such_case(self, paths: Paths, home: Path) -> None:
        link = in_hf(home, "Ann/M-GGUF", NAME, body(2), commit="d" * 40)
        done = await import_path(shelf_of(paths), link)
        assert (done.listed, done.ref.variant.source.model_dump()["revision"]) == (False, "d" * 40)

    async def test_a_file_that_was_imported_and_changed_since(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine.gguf", GOOD)
        await import_path(shelf, path)
        with path.open("r+b") as file:
            file.write(flipped(GOOD))
        with pytest.raises(NotVerified) as caught:
            await import_path(shelf, path)
        assert "--id NAME" in (caught.value.hint or "")
        assert "Put the right file back" in (caught.value.hint or "")
        assert "mine-imported" not in library(paths).catalog.models


class TestTheStoreItself:
    async def broken(self, paths: Paths, home: Path) -> tuple[Library, Path]:
        """A store whose only model was damaged through the user's name of it; and its quarantined file."""
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine.gguf", GOOD)
        done = await import_path(shelf, path)
        with path.open("r+b") as file:
            file.write(flipped(GOOD))
        with pytest.raises(NotVerified):
            await shelf.store.verify(done.ref)
        (left,) = shelf.store.leftovers()
        return shelf, left.path

    async def test_a_look_into_a_folder_around_it_passes_it_over(self, paths: Paths, home: Path) -> None:
        shelf, _ = await self.broken(paths, home)
        other = put(paths.data / "own" / "other.gguf", body(2))
        found = await named(shelf, str(paths.data))
        assert [candidate.main.path for candidate in found] == [other]

    async def test_its_folders_and_quarantine_are_refused_by_name(self, paths: Paths, home: Path) -> None:
        from appliance.errors import UsageError

        shelf, kept = await self.broken(paths, home)
        link = home / "link.gguf"
        link.symlink_to(kept)
        for path, why in (
            (paths.models, "the store of this program"),
            (kept.parent, "the store of this program"),
            (kept, "quarantine"),
            (link, "quarantine"),
        ):
            with pytest.raises(UsageError) as caught:
                await named(shelf, str(path))
            assert why in (caught.value.cause or ""), path

    async def test_another_name_of_a_quarantined_file_is_known(self, paths: Paths, home: Path) -> None:
        shelf, kept = await self.broken(paths, home)
        second = home / "second.gguf"
        second.hardlink_to(kept)
        with pytest.raises(NotVerified, match="failed a check before"):
            await import_path(shelf, second)

    async def test_hidden_folders_are_named_not_entered(self, paths: Paths, home: Path) -> None:
        from appliance.store import caches

        put(home / "x" / ".trash" / "old.gguf", body(2))
        scan = caches.scan_path(home / "x")
        assert scan.candidates == ()
        assert "hidden" in scan.skipped[0].why
        assert len(caches.scan_path(home / "x" / ".trash").candidates) == 1
