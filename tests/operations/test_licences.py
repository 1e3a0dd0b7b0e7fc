"""The licence gate stands in front of what the user enters, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.catalog import package, terms
from appliance.errors import LicenseNotAccepted, UsageError
from appliance.operations import catalog
from appliance.operations.models import Library
from appliance.paths import Paths
from tests.gguf import writer as w
from tests.hub.server import Hub
from tests.operations.hubhouse import body, library

Env = dict[str, str]
RESTRICTED = "qwen2.5-coder-3b-instruct"


def licensed(text: str | None) -> bytes:
    """A model file whose header states this licence."""
    entries = [w.entry("general.architecture", w.STRING, "llama")]
    entries += [w.entry("general.license", w.STRING, text)] if text else []
    return w.gguf(entries, [w.tensor("token_embd.weight", (32, 8), 0, 0)]) + bytes(2048)


async def added(
    hub: Hub, paths: Paths, env: Env, license_id: str | None, raw: bytes = body(1), *, repo: str = "o/M-GGUF"
) -> Library:
    hub.add(repo, license=license_id).commit({"M-Q4_K_M.gguf": raw})
    shelf = library(paths)
    await catalog.add(shelf, f"hf:{repo}/M-Q4_K_M.gguf", model_id="mine", env=env)
    return shelf


class TestTable:
    @pytest.mark.parametrize("license_id", [
        "cc-by-nc-4.0", "CC-BY-NC-SA-4.0", "cc-by-nc-nd-3.0", "qwen-research", "mrl", "exaone",
        "Mistral AI Research Licence", "fair-noncommercial-research-license", "intel-research",
    ])  # fmt: skip
    def test_non_commercial(self, license_id: str) -> None:
        assert terms.is_non_commercial(terms.note_of(license_id))

    @pytest.mark.parametrize(
        "license_id", ["gemma", "llama3.1", "llama4", "falcon-llm-license", "bigscience-openrail-m"]
    )
    def test_limited_but_commercial(self, license_id: str) -> None:
        note = terms.note_of(license_id)
        assert note is not None
        assert not terms.is_non_commercial(note)
        assert "not checked" not in note

    @pytest.mark.parametrize("license_id", ["apache-2.0", "mit", "MIT", "cc-by-4.0", "bsd-3-clause"])
    def test_free(self, license_id: str) -> None:
        assert terms.note_of(license_id) is None

    @pytest.mark.parametrize("license_id", [None, "", "other", "unknown", "some-new-license", "synced-2.0"])
    def test_unknown_is_said_and_asks_nobody(self, license_id: str | None) -> None:
        note = terms.note_of(license_id, "https://hub/o/m")
        assert note is not None
        assert note.startswith("not checked")
        assert "https://hub/o/m" in note
        assert not terms.is_non_commercial(note)

    def test_agrees_with_what_ships(self) -> None:
        """Where the shipped catalog notes nothing, or something of the licence itself."""
        for model in package().values():
            note = terms.note_of(model.license)
            if not (model.license_note or "").startswith("base model under"):
                assert model.restricted == terms.is_non_commercial(note), model.id
                assert (model.license_note is None) == (note is None), model.id


class TestAdded:
    async def test_non_commercial_is_behind_the_gate(self, hub: Hub, paths: Paths, env: Env) -> None:
        shelf = await added(hub, paths, env, "cc-by-nc-4.0")
        ref = library(paths).resolve("mine")  # as the file says
        assert ref.model.restricted
        with pytest.raises(LicenseNotAccepted, match=r"cc-by-nc-4\.0"):
            catalog.require_license(shelf, ref)
        catalog.require_license(shelf, ref, True)
        catalog.require_license(shelf, ref)

    async def test_unknown_is_shown_and_not_behind_it(self, hub: Hub, paths: Paths, env: Env) -> None:
        shelf = await added(hub, paths, env, "other")
        ref = shelf.resolve("mine")
        assert f"{hub.url}/o/M-GGUF" in (ref.model.license_note or "")
        catalog.require_license(shelf, ref)

    async def test_a_header_that_forbids_counts_over_a_card_that_allows(
        self, hub: Hub, paths: Paths, env: Env
    ) -> None:
        shelf = await added(hub, paths, env, "mit", licensed("cc-by-nc-4.0"))
        assert shelf.resolve("mine").model.restricted
        assert shelf.resolve("mine").model.license == "cc-by-nc-4.0"

    async def test_a_second_name_for_a_listed_repository_keeps_its_licence(
        self, hub: Hub, paths: Paths, env: Env
    ) -> None:
        model = package()[RESTRICTED]
        repo = model.variants[0].source.model_dump()["repo"]
        shelf = await added(hub, paths, env, "mit", repo=repo)
        mine = shelf.resolve("mine").model
        assert (mine.license, mine.license_note) == (model.license, model.license_note)

    async def test_a_second_name_for_listed_bytes_keeps_their_licence(
        self, hub: Hub, paths: Paths, env: Env, tmp_path: Path
    ) -> None:
        shelf = await added(hub, paths, env, "cc-by-nc-4.0")
        (tmp_path / "copy.gguf").write_bytes(body(1))
        await catalog.add(shelf, str(tmp_path / "copy.gguf"), env=env)
        assert shelf.resolve("copy").model.restricted

    async def test_a_restricted_quant_can_t_hide_in_a_free_model(
        self, hub: Hub, paths: Paths, env: Env
    ) -> None:
        hub.add("o/free-GGUF", license="mit").commit({"free-Q8_0.gguf": body(3, file_type=7)})
        shelf = library(paths)
        await catalog.add(shelf, "hf:o/free-GGUF/free-Q8_0.gguf", model_id="mine", env=env)
        with pytest.raises(UsageError, match="another licence"):
            await added(hub, paths, env, "cc-by-nc-4.0")
        assert len(shelf.catalog.models["mine"].variants) == 1
