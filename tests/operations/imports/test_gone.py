"""A model whose own files are elsewhere: damaged or gone, its owner is told where, and what can work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from appliance.cli import up
from appliance.errors import ApplianceError, ModelMissing, NotVerified
from appliance.operations.catalog import show
from appliance.operations.imports import import_path
from appliance.operations.models import Library
from appliance.operations.rows import rows
from appliance.paths import Paths
from tests.operations.hubhouse import body, entry, library, sha256
from tests.operations.imports.house import COMMIT, in_lmstudio, listing
from tests.operations.imports.test_damaged import flipped

GOOD = body(1)


async def taken(shelf: Library, home: Path) -> tuple[str, Path]:
    path = in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", GOOD)
    return (await import_path(shelf, path, how="reference")).ref.ref, path


def row_of(shelf: Library, ref: str) -> dict[str, object]:
    return next(row for row in rows(shelf) if row["ref"] == ref)


class TestGone:
    async def test_it_stays_in_the_list_with_where_it_was(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        ref, path = await taken(shelf, home)
        path.rename(home / "away")
        row = row_of(shelf, ref)
        assert (row["state"], row["path"], row["referenced"]) == ("missing", str(path), True)
        (shown,) = (await show(shelf, "mine"))["variants"]
        assert (shown["state"], shown["path"]) == ("missing", str(path))
        (home / "away").rename(path)
        assert row_of(shelf, ref)["state"] == "here"

    async def test_it_stays_when_no_catalog_lists_it_any_more(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        ref, path = await taken(shelf, home)
        paths.user_catalog.unlink()
        path.unlink()
        assert row_of(shelf, ref)["state"] == "missing"

    async def test_it_is_not_fetched_anew_unasked(
        self, paths: Paths, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a model on the Hub, too: `up` says where the file was; a pull is the user's to ask for."""
        other = entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(7))
        second = other.partition("[[")[2].replace(sha256(body(7)), sha256(GOOD)).replace("Q4_K_M", "Q8_0")
        shelf = listing(paths, f"{other}[[{second}")
        ref, path = await taken(shelf, home)
        assert ref == "listed:Q8_0"
        path.unlink()
        monkeypatch.setattr(up, "library", lambda: shelf)
        for name in ("listed", "listed:Q8_0"):
            with pytest.raises(ModelMissing) as caught:
                up.choose(name)
            said = str(caught.value)
            assert str(path) in said
            assert "appliance models pull listed:Q8_0" in said
        shelf.store.require_not_lost(shelf.resolve("listed:Q4_K_M"))  # that one was never here

    async def test_a_source_that_is_a_file_is_what_a_pull_needs(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        ref, path = await taken(shelf, home)
        path.unlink()
        with pytest.raises(ModelMissing) as caught:
            shelf.store.require_not_lost(shelf.resolve(ref))
        said = caught.value.hint or ""
        assert str(path) in said
        assert f"models repair {ref}" in said
        assert f"models rm {ref}" in said
        with pytest.raises(ApplianceError, match="is not there") as failed:
            await shelf.store.pull(shelf.resolve(ref))
        assert "Put the file back" in (failed.value.hint or "")


class TestDamaged:
    @pytest.mark.parametrize("how", ["link", "reference"])
    async def test_the_advice_fits_and_works(self, paths: Paths, home: Path, how: str) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", GOOD)
        ref = (await import_path(shelf, path, how="link" if how == "link" else "reference")).ref
        shutil.copyfile(path, home / "backup")
        with path.open("r+b") as file:
            file.write(flipped(GOOD))
        with pytest.raises(NotVerified) as caught:
            await shelf.store.verify(ref)
        assert f"Its source is {path}" in (caught.value.hint or "")
        with pytest.raises(NotVerified) as failed:
            await shelf.store.repair(ref)
        assert "Put the right file back" in str(failed.value) or "Its source is" in str(failed.value)
        path.unlink()
        (home / "backup").rename(path)
        done = await shelf.store.repair(ref)
        assert done.stored.main.read_bytes() == GOOD
