"""What is there, and taking in what the catalog lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.operations.imports import Survey, import_path
from appliance.paths import Paths
from tests.hub.server import Hub
from tests.operations.hubhouse import body, entry, library
from tests.operations.imports.house import (
    COMMIT,
    in_hf,
    in_lmstudio,
    in_ollama,
    listing,
    same,
    survey,
    with_projector,
)


class TestWhatIsThere:
    async def test_of_three_programs_with_what_each_seems_to_be(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        in_hf(home, "Ann/M-GGUF", "M-Q4_K_M.gguf", body(1))
        in_lmstudio(home, "Ann/M-GGUF/M-Q4_K_M.gguf", body(1))
        in_ollama(home, "m:latest", body(1))
        in_ollama(home, "other:latest", body(2))
        found = await survey(shelf, home)
        assert {(f.candidate.origin, f.candidate.name, f.candidate.catalog_ref) for f in found.found} == {
            ("hf", "Ann/M-GGUF M-Q4_K_M.gguf", "listed:Q4_K_M"),
            ("lmstudio", "Ann/M-GGUF M-Q4_K_M.gguf", "listed:Q4_K_M"),
            ("ollama", "m:latest", "listed:Q4_K_M"),
            ("ollama", "other:latest", None),
        }
        assert {(f.state, f.how, f.why) for f in found.found} == {("new", "link", None)}

    async def test_a_name_with_another_size_is_no_match(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        in_lmstudio(home, "Ann/M-GGUF/M-Q4_K_M.gguf", body(1, n_bytes=8192))
        assert [f.candidate.catalog_ref for f in (await survey(shelf, home)).found] == [None]

    async def test_a_stated_hash_outweighs_repository_and_name(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        in_hf(
            home, "Ann/M-GGUF", "M-Q4_K_M.gguf", body(2)
        )  # an older or newer file of the same name and size
        assert [f.candidate.catalog_ref for f in (await survey(shelf, home)).found] == [None]

    async def test_what_was_taken_is_here(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1))
        done = await import_path(shelf, path)
        (found,) = (await survey(shelf, home)).found
        assert (found.state, found.candidate.catalog_ref) == ("here", done.ref.ref)

    async def test_nothing_anywhere(self, paths: Paths, home: Path) -> None:
        assert await survey(library(paths), home) == Survey((), (), ())


class TestListed:
    async def test_is_taken_in_under_its_ref(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        path = in_ollama(home, "whatever:7b", body(1))
        done = await import_path(shelf, path)
        assert (done.ref.ref, done.listed, done.how) == ("listed:Q4_K_M", True, "link")
        assert done.stored is not None
        assert done.stored.main.name == "M-Q4_K_M.gguf"
        assert same(done, path)
        assert (await shelf.require(shelf.resolve("listed"))).ref == "listed:Q4_K_M"

    async def test_whatever_it_is_called(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        done = await import_path(shelf, in_lmstudio(home, "Eve/Other-GGUF/other-Q8_0.gguf", body(1)))
        assert done.ref.ref == "listed:Q4_K_M"

    async def test_under_a_name_of_one_s_own_when_asked(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        done = await import_path(shelf, in_lmstudio(home, "a/b/x.gguf", body(1)), id="mine")
        assert (done.ref.ref, done.listed) == ("mine:Q4_K_M", False)

    async def test_the_projector_of_the_pin_is_found_among_several(self, paths: Paths, home: Path) -> None:
        seer, right, wrong = body(1), body(2, n_bytes=5000), body(3, n_bytes=5000)
        text = entry("seer", "Ann/S", COMMIT, "S-Q4_K_M.gguf", seer)
        shelf = listing(paths, with_projector(text, right))
        path = in_lmstudio(home, "a/s/whatever.gguf", seer)
        in_lmstudio(home, "a/s/mmproj-f16.gguf", wrong)
        in_lmstudio(home, "a/s/mmproj-bf16.gguf", right)
        done = await import_path(shelf, path)
        assert done.missing == ()
        assert done.stored is not None
        assert [f.path.name for f in done.stored.files] == ["S-Q4_K_M.gguf", "mmproj-S.gguf"]

    async def test_without_its_projector_it_waits_for_a_pull_of_only_that(
        self, paths: Paths, home: Path, hub: Hub, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seer, sight = body(1), body(2, n_bytes=5000)
        commit = hub.add("Ann/S").commit({"S-Q4_K_M.gguf": seer, "mmproj-S.gguf": sight})
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        text = entry("seer", "Ann/S", commit, "S-Q4_K_M.gguf", seer)
        shelf = listing(paths, with_projector(text, sight))
        path = in_lmstudio(home, "a/s/s.gguf", seer)
        done = await import_path(shelf, path)
        assert done.stored is None
        assert [pin.base_name for pin in done.missing] == ["mmproj-S.gguf"]
        stored = await shelf.store.pull(done.ref)
        assert stored.main.samefile(path)
        assert [p for p in hub.paths if "resolve" in p and "S-Q4" in p] == []
