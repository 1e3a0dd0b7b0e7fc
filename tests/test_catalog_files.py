"""A models.toml that is empty, no file, or holds what can't be used: what is said of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance import catalog
from appliance.errors import CatalogError
from tests.test_catalog import COMMIT, PIN, entry


def test_a_pipe_in_its_place_is_said_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "models.toml")
    with pytest.raises(CatalogError, match="can't be read") as caught:
        catalog.load(tmp_path / "models.toml")
    assert "pipe" in (caught.value.cause or "")


@pytest.mark.parametrize("text", ["", "\n", "# my models\n", "\ufeff# nothing yet"])
def test_an_empty_one_holds_no_entries(tmp_path: Path, text: str) -> None:
    mine = tmp_path / "models.toml"
    mine.write_text(text)
    assert catalog.load(mine) == catalog.load()
    assert catalog.load(None, mine) == catalog.load()


def test_deep_nesting_is_an_error_of_the_file(tmp_path: Path) -> None:
    mine = tmp_path / "models.toml"
    mine.write_text("schema = 1\nx = " + "[" * 3000 + "]" * 3000)
    with pytest.raises(CatalogError, match=r"models\.toml can't be read"):
        catalog.load(mine)


def test_an_open_end_names_the_last_line(tmp_path: Path) -> None:
    mine = tmp_path / "models.toml"
    mine.write_text("schema = 1\nmodels = [\n1,\n")
    with pytest.raises(CatalogError, match=r"models\.toml, line 3: "):
        catalog.load(mine)


def test_hex_digits_may_be_upper_case(tmp_path: Path) -> None:
    mine = tmp_path / "models.toml"
    text = entry("x").replace(PIN, PIN.upper()).replace(COMMIT, COMMIT.upper())
    mine.write_text("schema = 1\n" + text)
    variant = catalog.load(mine).resolve("x").variant
    assert isinstance(variant.source, catalog.HfSource)
    assert (variant.main.sha256, variant.source.revision) == (PIN, COMMIT)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (PIN, "short", "64 hex digits"),
        (COMMIT, "main", "40 hex digits"),
        ('family = "fam"', 'family = "Fam ily"', "lower-case letters"),
        ("models.x", "models.X", "lower-case letters"),
        ("owner/repo", "owner", "OWNER/NAME"),
        ('"Q4_K_M"', '"Q4/K"', "like Q4_K_M"),
        ('"hf"', '"ftp"', "hf, url, wheel or file"),
        ("a.gguf", "../a.gguf", "can't be a file name"),
    ],
)
def test_forms_are_told_in_words(tmp_path: Path, old: str, new: str, said: str) -> None:
    mine = tmp_path / "models.toml"
    mine.write_text("schema = 1\n" + entry("x").replace(old, new))
    with pytest.raises(CatalogError) as caught:
        catalog.load(mine)
    assert said in (caught.value.cause or "")
    assert not set("^$\\") & set(caught.value.cause or "")
    assert "Value error" not in (caught.value.cause or "")
