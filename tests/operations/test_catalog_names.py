"""`models add`: what a name may mean, and who is first when several add at once."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from appliance.catalog import HfSource, Model, package
from appliance.errors import ApplianceError, UsageError
from appliance.operations import catalog
from appliance.operations.catalog import writing
from appliance.operations.models import Library
from appliance.paths import Paths
from tests.hub.server import Hub
from tests.operations.hubhouse import body, library

Env = dict[str, str]
REPO = "owner/Tiny-1B-GGUF"
Q4, Q8 = body(4), body(8, file_type=7)


@pytest.fixture
def mine(hub: Hub, paths: Paths) -> Library:
    hub.add(REPO, license="mit").commit({"Tiny-1B-Q4_K_M.gguf": Q4, "Tiny-1B-Q8_0.gguf": Q8})
    return library(paths)


class TestAnIdGoesOnMeaningWhatItMeans:
    async def test_an_id_of_the_package_takes_no_other_repository(
        self, mine: Library, env: Env, tmp_path: Path
    ) -> None:
        (tmp_path / "x-Q8_0.gguf").write_bytes(Q8)
        for source in (f"hf:{REPO}/Tiny-1B-Q8_0.gguf", str(tmp_path / "x-Q8_0.gguf")):
            with pytest.raises(UsageError, match="not from a repository of it") as caught:
                await catalog.add(mine, source, model_id="qwen3-8b", env=env)
            assert re.search(r"--id (tiny-1b|x)\.", caught.value.hint or "")
        assert not mine.paths.pins.exists()
        assert not mine.paths.user_catalog.exists()

    async def test_a_family_is_no_id(self, mine: Library, env: Env) -> None:
        with pytest.raises(UsageError, match="name of a family") as caught:
            await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q8_0.gguf", model_id="qwen3", env=env)
        assert "--id qwen3-2" in (caught.value.hint or "")
        assert not mine.paths.user_catalog.exists()

    async def test_a_second_quant_of_a_listed_repository_says_what_it_joined(
        self, mine: Library, env: Env
    ) -> None:
        await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", model_id="ours", env=env)
        done = await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q8_0.gguf", env=env)
        assert done["ref"] == "ours:Q8_0"
        assert f"{REPO} is listed as ours" in done["hints"][0]

    async def test_the_ending_is_no_part_of_an_id_however_it_is_written(
        self, mine: Library, hub: Hub, env: Env
    ) -> None:
        hub.add("o/loud-GGUF").commit({"Loud-7B.Q8_0.GGUF": Q8})
        done = await catalog.add(mine, "hf:o/loud-GGUF/Loud-7B.Q8_0.GGUF", env=env)
        assert done["ref"] == "loud-7b:Q8_0"


class TestAnotherCommit:
    async def test_both_commits_are_named(self, mine: Library, hub: Hub, env: Env) -> None:
        source, repo = f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", hub.repositories[REPO]
        old = repo.branches["main"]
        await catalog.add(mine, source, env=env)
        new = repo.commit({"Tiny-1B-Q4_K_M.gguf": body(5)})
        with pytest.raises(UsageError, match="another pin") as caught:
            await catalog.add(mine, source, env=env)
        assert old[:12] in (caught.value.cause or "")
        assert new[:12] in (caught.value.cause or "")

    async def test_the_same_bytes_there_are_what_is_listed(self, mine: Library, hub: Hub, env: Env) -> None:
        source, repo = f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", hub.repositories[REPO]
        old = repo.branches["main"]
        await catalog.add(mine, source, env=env)
        new = repo.commit({"Tiny-1B-Q4_K_M.gguf": Q4, "README.md": b"new"})
        done = await catalog.add(mine, source, env=env)
        assert (done["added"], done["source"]["revision"]) == (False, old)
        assert old[:12] in done["hints"][0]
        assert new[:12] in done["hints"][0]


class TestAtOnce:
    async def test_quants_of_one_repository_all_arrive(self, hub: Hub, paths: Paths, env: Env) -> None:
        quants = ("Q2_K", "Q4_0", "Q5_K_M", "Q8_0")
        hub.add(REPO).commit({f"T-{quant}.gguf": body(n) for n, quant in enumerate(quants)})
        shelf = library(paths)
        await asyncio.gather(*(catalog.add(shelf, f"hf:{REPO}/T-{quant}.gguf", env=env) for quant in quants))
        assert {v.quant for v in shelf.catalog.models["t"].variants} == set(quants)

    async def test_an_entry_made_between_look_and_write_is_joined(
        self, mine: Library, env: Env, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = library(mine.paths)
        await catalog.add(other, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", env=env)
        first = other.paths.user_catalog.read_bytes()
        other.paths.user_catalog.unlink()
        write = writing.add_model

        def late(paths: Paths, model: Model) -> None:
            paths.user_catalog.write_bytes(first)  # the other process was first
            write(paths, model)

        monkeypatch.setattr(writing, "add_model", late)
        done = await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q8_0.gguf", env=env)
        assert done["ref"] == "tiny-1b:Q8_0"
        assert [v.quant for v in mine.catalog.models["tiny-1b"].variants] == ["Q4_K_M", "Q8_0"]


class TestTooLong:
    async def test_a_name_that_the_store_could_not_hold(self, mine: Library, hub: Hub, env: Env) -> None:
        name = "y" * 240 + "-Q4_0.gguf"
        hub.add("o/long-GGUF").commit({name: Q4})
        with pytest.raises(ApplianceError) as caught:
            await catalog.add(mine, f"hf:o/long-GGUF/{name}", model_id="long", env=env)
        assert "250 bytes" in str(caught.value)
        assert "200" in str(caught.value)
        assert not mine.paths.user_catalog.exists()


def test_a_repository_of_the_package_is_known_in_any_case(paths: Paths) -> None:
    """So that a second name for it keeps its licence, however it is typed."""
    from appliance.operations.catalog.heritage import same_models

    model = next(m for m in package().values() if isinstance(m.variants[0].source, HfSource))
    source = model.variants[0].source
    assert isinstance(source, HfSource)
    assert model in same_models(library(paths).catalog, source.repo.upper(), ())
