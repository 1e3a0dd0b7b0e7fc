"""Taking in what no catalog lists: an entry of its own, never the name of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.catalog import FileSource, HfSource
from appliance.errors import UsageError
from appliance.operations.imports import import_path
from appliance.paths import Paths
from tests.operations.hubhouse import body, entry, library
from tests.operations.imports.house import (
    COMMIT,
    in_hf,
    in_lmstudio,
    in_ollama,
    listing,
    put,
    survey,
)
from tests.store.helpers import Seen


class TestNew:
    async def test_gets_an_entry_in_the_user_s_file_and_can_be_used(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "Ann/Mine-GGUF/Mine-7B-Q4_K_M.gguf", body(1))
        done = await import_path(shelf, path)
        assert (done.ref.ref, done.listed, done.how) == ("mine-7b:Q4_K_M", False, "link")
        again = library(paths)  # from the files alone
        ref = again.resolve("mine-7b")
        assert ref.variant.pin == "user"
        assert ref.variant.source == FileSource(kind="file", path=str(path))
        assert (ref.model.context, ref.model.license, ref.model.use) == (2048, "mit", ("chat",))
        assert (await again.require(ref)).main.samefile(path)

    async def test_of_a_cache_that_told_the_truth_comes_from_the_hub(self, paths: Paths, home: Path) -> None:
        link = in_hf(home, "Ann/Mine-GGUF", "sub/Mine-Q4_K_M.gguf", body(1))
        done = await import_path(library(paths), link)
        assert done.ref.variant.source == HfSource(kind="hf", repo="Ann/Mine-GGUF", revision=COMMIT)
        assert done.ref.variant.main.name == "sub/Mine-Q4_K_M.gguf"

    async def test_named_like_a_model_of_the_catalog_it_gets_another_name(
        self, paths: Paths, home: Path
    ) -> None:
        shelf = library(paths)
        package = next(iter(shelf.catalog.models.values()))
        done = await import_path(shelf, in_lmstudio(home, f"a/b/{package.id}-Q4_K_M.gguf", body(1)))
        assert done.ref.id == f"{package.id}-imported"
        assert library(paths).catalog.models[package.id] == package

    async def test_named_like_a_family_it_gets_another_name(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        families = {model.family for model in shelf.catalog.models.values()}
        family = next(iter(families - set(shelf.catalog.models)))
        done = await import_path(shelf, in_lmstudio(home, f"a/b/{family}-Q4_K_M.gguf", body(1)))
        assert done.ref.id == f"{family}-imported"

    async def test_a_taken_name_that_was_asked_for_is_refused(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        package = next(iter(shelf.catalog.models))
        path = in_lmstudio(home, "a/b/x.gguf", body(1))
        with pytest.raises(UsageError, match="another model"):
            await import_path(shelf, path, id=package)
        assert shelf.store.list() == ()
        assert not paths.user_catalog.exists()

    async def test_another_quant_of_one_s_own_model_joins_it(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        await import_path(shelf, in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1)))
        await import_path(shelf, in_lmstudio(home, "a/b/mine-Q8_0.gguf", body(2, file_type=7)))
        assert [v.quant for v in library(paths).catalog.models["mine"].variants] == ["Q4_K_M", "Q8_0"]

    async def test_other_bytes_of_the_same_quant_do_not(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        await import_path(shelf, in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1)))
        done = await import_path(shelf, in_lmstudio(home, "c/d/mine-Q4_K_M.gguf", body(2)))
        assert done.ref.id == "mine-imported"

    async def test_once_more_is_the_same_model(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1))
        first = await import_path(shelf, path)
        again = await import_path(shelf, path)
        assert (again.ref.ref, again.how, again.listed) == (first.ref.ref, None, True)

    async def test_a_second_name_of_what_is_here_is_not_read_again(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1))
        await import_path(shelf, path)
        await shelf.require(shelf.resolve("mine"))
        seen = Seen()
        again = await import_path(shelf, path, on_progress=seen)
        assert (again.ref.ref, again.how) == ("mine:Q4_K_M", None)
        assert seen == []

    async def test_a_name_that_the_store_could_not_hold_is_replaced(self, paths: Paths, home: Path) -> None:
        path = in_lmstudio(home, "a/b/" + "y" * 240 + "-Q4_K_M.gguf", body(1))
        done = await import_path(library(paths), path, id="long")
        assert done.stored is not None
        assert done.stored.main.name == "long-Q4_K_M.gguf"
        assert done.stored.main.samefile(path)

    async def test_an_ending_in_capitals_is_no_part_of_the_id(self, paths: Paths, home: Path) -> None:
        done = await import_path(library(paths), in_lmstudio(home, "a/b/Mine-7B.Q4_K_M.GGUF", body(1)))
        assert done.ref.ref == "mine-7b:Q4_K_M"

    async def test_comments_of_the_user_s_file_stay(self, paths: Paths, home: Path) -> None:
        shelf = listing(
            paths, "# mine\n" + entry("listed", "Ann/M", COMMIT, "M.gguf", body(9)) + "# the end\n"
        )
        await import_path(shelf, in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1)))
        text = paths.user_catalog.read_text()
        assert "# mine\n" in text
        assert "# the end\n" in text
        assert set(library(paths).catalog.models) >= {"listed", "mine"}

    async def test_a_catalog_that_can_t_be_written_leaves_no_model_without_a_name(
        self, paths: Paths, home: Path
    ) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1))
        put(paths.user_catalog, b"this is not TOML")
        with pytest.raises(UsageError):
            await import_path(shelf, path)
        assert shelf.store.list() == ()
        assert path.read_bytes() == body(1)

    async def test_a_set_and_its_projector(self, paths: Paths, home: Path) -> None:
        for n in (1, 2):
            in_lmstudio(home, f"a/big/big-Q4_K_M-0000{n}-of-00002.gguf", body(n))
        in_lmstudio(home, "a/big/mmproj-big-f16.gguf", body(3))
        first = home / ".lmstudio/models/a/big/big-Q4_K_M-00001-of-00002.gguf"
        done = await import_path(library(paths), first)
        assert [(f.role, f.part) for f in done.ref.variant.files] == [
            ("model", 1),
            ("model", 2),
            ("mmproj", None),
        ]
        assert done.ref.model.use == ("chat", "vision")
        assert done.ref.ref == "big:Q4_K_M"

    @pytest.mark.parametrize(
        ("name", "file_type", "quant"),
        [
            ("m-Q8_0.gguf", 15, "Q4_K_M"),  # the name lies, the header counts
            ("m-UD-Q4_K_XL.gguf", 15, "UD-Q4_K_XL"),  # finer, of the same width
            ("m-IQ4_XS.gguf", 15, "Q4_K_M"),
            ("m.gguf", 7, "Q8_0"),
            ("m-Q5_K_M.gguf", 999, "F32"),  # a type unknown here: what the bytes are
        ],
    )
    async def test_quant(self, paths: Paths, home: Path, name: str, file_type: int, quant: str) -> None:
        path = in_lmstudio(home, f"a/b/{name}", body(1, file_type=file_type))
        assert (await import_path(library(paths), path)).ref.quant == quant

    @pytest.mark.parametrize(
        ("name", "model_id"),
        [
            ("llama3.2:3b", "llama3.2-3b"),
            ("ours2.5:7b-instruct-q4_K_M", "ours2.5-7b-instruct"),
            ("mine:latest", "mine"),
        ],
    )
    async def test_id_of_ollama(self, paths: Paths, home: Path, name: str, model_id: str) -> None:
        shelf = library(paths)
        in_ollama(home, name, body(1))
        (found,) = (await survey(shelf, home)).found
        done = await import_path(shelf, found.candidate)
        assert done.ref.id == model_id
        assert done.stored is not None
        assert done.stored.main.name == f"{model_id}-Q4_K_M.gguf"  # not the name of a blob

    @pytest.mark.parametrize(
        ("name", "model_id"),
        [
            ("Mine 7B (final).Q4_K_M.gguf", "mine-7b-final"),
            ("model.gguf", "inner-name"),
            ("ggml-model-q4_0.gguf", "inner-name"),
            ("Größe-7B.gguf", "gr-e-7b"),
            ("模型.gguf", "inner-name"),
        ],
    )
    async def test_id_of_a_file(self, paths: Paths, home: Path, name: str, model_id: str) -> None:
        path = in_lmstudio(home, f"a/b/{name}", body(1))
        assert (await import_path(library(paths), path)).ref.id == model_id
