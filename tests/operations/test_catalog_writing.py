"""Adding to a models.toml in whatever way its owner writes it: nothing else changes, or nothing at all."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from appliance import catalog
from appliance.catalog import File, HfSource, Model, Variant
from appliance.errors import CatalogError, UsageError
from appliance.operations.catalog import writing
from appliance.paths import Paths
from tests.operations.hubhouse import paths_under

SHA = "ab" * 32
INLINE = (
    '{ quant = "Q4_0", source = { kind = "file", path = "~/a.gguf" }, '
    f'files = [{{ name = "a.gguf", size = 5, sha256 = "{SHA}" }}] }}'
)
TABLE = f"""quant = "Q4_0"
source = {{ kind = "file", path = "~/a.gguf" }}
files = [{{ name = "a.gguf", size = 5, sha256 = "{SHA}" }}]
"""
WORDS = 'family = "f"\nname = "N"\nuse = ["chat"]\n'
PLAIN = f"schema = 1\n[models.mine]\n{WORDS}[[models.mine.variants]]\n{TABLE}"
WAYS = {
    "plain": PLAIN,
    "no newline at the end": PLAIN.rstrip(),
    "a table above": PLAIN.replace("[models.mine]", "[models]\n[models.mine]"),
    "two models": f"{PLAIN}[models.b]\n{WORDS}[[models.b.variants]]\n{TABLE}# end\n",
    "out of order": (
        f"schema = 1\n[models.mine]\n{WORDS}[models.b]\n{WORDS}"
        f"[[models.mine.variants]]\n{TABLE}[[models.b.variants]]\n{TABLE}"
    ),
    "quoted": PLAIN.replace("models.mine", 'models."mine"'),
    "dotted": (
        'schema = 1\nmodels.mine.family = "f"\nmodels.mine.name = "N"\nmodels.mine.use = ["chat"]\n'
        f"models.mine.variants = [{INLINE}]\n"
    ),
    "a model in one line": (
        f'models.mine = {{ family = "f", name = "N", use = ["chat"], variants = [{INLINE}] }}\nschema = 1\n'
    ),
    "tables all the way": (
        f'schema = 1\n[models.mine]\n{WORDS}[[models.mine.variants]]\nquant = "Q4_0"\n'
        '[models.mine.variants.source]\nkind = "file"\npath = "~/a.gguf"\n'
        f'[[models.mine.variants.files]]\nname = "a.gguf"\nsize = 5\nsha256 = "{SHA}"\n'
    ),
}


def variant(quant: str = "Q8_0") -> Variant:
    weights = File(name="sub/b.gguf", size=9, sha256="cd" * 32)
    eyes = File(name="mm.gguf", role="mmproj", size=3, sha256="ef" * 32)
    source = HfSource(kind="hf", repo="o/r", revision="ef" * 20)
    return Variant(quant=quant, source=source, files=(weights, eyes), pin="hub")


def model(model_id: str = "new.one-1b") -> Model:
    return Model(
        id=model_id, family="new", name='Na "me" \\ é', use=("chat", "code"), context=7, params=1.5e9,
        license="mit", variants=(variant(),), notes="x",
    )  # fmt: skip


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return paths_under(tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_and_a_variant_are_added_and_all_else_means_the_same(paths: Paths, way: str) -> None:
    paths.user_catalog.write_text(WAYS[way])
    before = writing.own_models(paths)
    writing.add_variant(paths, "mine", variant())
    writing.add_model(paths, model())
    after = writing.own_models(paths)
    assert after["mine"].variants == (*before["mine"].variants, variant())
    assert after["new.one-1b"] == model()
    assert {key: value for key, value in after.items() if key not in ("mine", "new.one-1b")} == {
        key: value for key, value in before.items() if key != "mine"
    }
    assert [file.name for file in paths.config.iterdir()] == ["models.toml"]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("text", [PLAIN, PLAIN.rstrip(), "# my own\n"])
def test_line_ends_and_the_mark_of_byte_order_stay(paths: Paths, text: str, mark: bytes) -> None:
    before = mark + text.replace("\n", "\r\n").encode()
    paths.user_catalog.write_bytes(before)
    writing.add_model(paths, model())
    after = paths.user_catalog.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == after.count(b"\r\n") > before.count(b"\n")
    assert after.count(b"\xef\xbb\xbf") == len(mark) / 3
    assert writing.own_models(paths)["new.one-1b"] == model()


@pytest.mark.parametrize("text", ["", "\n\n", "# my own\n\n", "# my own"])
def test_a_file_without_entries_is_begun(paths: Paths, text: str) -> None:
    for file in (paths.user_catalog, paths.pins):
        file.write_text(text)
    writing.add_model(paths, model())
    writing.add_pin(paths, "qwen3-8b", variant())
    assert writing.own_models(paths) == {"new.one-1b": model()}
    assert catalog.parse_pins(paths.pins.read_text(), "pins") == {"qwen3-8b": (variant(),)}
    assert text.strip() in paths.user_catalog.read_text()


def test_the_mirror_that_stated_a_pin_is_kept(paths: Paths) -> None:
    stated = variant().model_copy(update={"pin_host": "mirror.example:8443"})
    writing.add_pin(paths, "qwen3-8b", stated)
    assert 'pin_host = "mirror.example:8443"' in paths.pins.read_text()
    assert catalog.load(None, paths.pins).resolve("qwen3-8b:q8_0").variant == stated


def test_what_can_not_be_added_to_is_left_as_it_is(paths: Paths) -> None:
    words = WORDS.strip().replace("\n", ", ")
    text = f"schema = 1\nmodels = {{ mine = {{ {words}, variants = [{INLINE}] }} }}\n"
    paths.user_catalog.write_text(text)
    with pytest.raises(CatalogError, match="nothing was changed"):
        writing.add_model(paths, model())
    assert paths.user_catalog.read_text() == text


def test_a_new_file_can_be_read_by_people(paths: Paths) -> None:
    writing.add_model(paths, model())
    assert (
        paths.user_catalog.read_text()
        == f"""# Your own models: added to those of the package, or in place of the one of the same ID.

schema = 1

[models."new.one-1b"]
family = "new"
name = "Na \\"me\\" \\\\ é"
params = 1500000000
context = 7
license = "mit"
use = ["chat", "code"]
notes = "x"

[[models."new.one-1b".variants]]
quant = "Q8_0"
pin = "hub"
source = {{kind = "hf", repo = "o/r", revision = "{"ef" * 20}"}}
files = [
    {{name = "sub/b.gguf", role = "model", size = 9, sha256 = "{"cd" * 32}"}},
    {{name = "mm.gguf", role = "mmproj", size = 3, sha256 = "{"ef" * 32}"}},
]
"""
    )


def test_what_is_there_is_never_replaced(paths: Paths) -> None:
    writing.add_model(paths, model())
    with pytest.raises(UsageError, match="meanwhile"):
        writing.add_model(paths, model())
    with pytest.raises(UsageError, match="meanwhile"):
        writing.add_variant(paths, "new.one-1b", variant("q8_0"))
    first = writing.add_pin(paths, "qwen3-8b", variant())
    other = variant("q8_0").model_copy(update={"files": variant().files[:1]})
    assert writing.add_pin(paths, "qwen3-8b", other) == first


def pin(home: str, number: int) -> None:
    writing.add_pin(paths_under(Path(home)), f"m{number % 2}", variant(f"Q{number}_0"))


def test_processes_do_not_lose_each_others_pins(tmp_path: Path, paths: Paths) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        pool.starmap(pin, [(str(tmp_path), number) for number in range(1, 9)])
    pins = catalog.parse_pins(paths.pins.read_text(), "pins")
    assert sorted(v.quant for variants in pins.values() for v in variants) == [f"Q{n}_0" for n in range(1, 9)]
