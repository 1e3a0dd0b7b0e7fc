"""Numbers and names that no machine can mean are refused where they are written."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from appliance import catalog
from appliance.catalog import File
from appliance.catalog.entries import MAX_NAME
from appliance.cli import output
from appliance.errors import CatalogError
from appliance.store import disk

TEXT = """schema = 1
[models.mine]
family = "mine"
name = "Mine"
params = 5
use = ["chat"]
[[models.mine.variants]]
quant = "Q8_0"
source = { kind = "url", url = "http://127.0.0.1:9/m.gguf" }
files = [{ name = "m.gguf", size = 100, sha256 = "%s" }]
""" % ("a" * 64)


@pytest.mark.parametrize("odd", ["inf", "-inf", "nan", "1e999"])
def test_a_number_of_parameters_is_finite(odd: str) -> None:
    with pytest.raises(CatalogError, match="params"):
        catalog.parse(TEXT.replace("params = 5", f"params = {odd}"), "models.toml")


def test_a_size_that_no_disk_holds(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="size"):
        catalog.parse(TEXT.replace("size = 100", f"size = {10**23}"), "models.toml")


@pytest.mark.parametrize("letter", ["y", "ü", "模"])
def test_a_name_leaves_room_for_what_the_store_adds(tmp_path: Path, letter: str) -> None:
    longest = letter * ((MAX_NAME - 5) // len(letter.encode())) + ".gguf"
    File(name=f"any/folder/{longest}", size=1, sha256="a" * 64)
    worst = tmp_path / f".20260101T000000-abcdef-{longest}.part.json.12345678"
    worst.touch()  # the longest of what is put around a name
    with pytest.raises(ValidationError, match="at most 200"):
        File(name=longest + letter * 5, size=1, sha256="a" * 64)
    with pytest.raises(CatalogError, match="name"):
        catalog.parse(TEXT.replace("m.gguf", letter * 201), "models.toml")


def test_a_name_too_long_for_the_disk_is_no_matter_of_rights() -> None:
    error = disk.write_error(OSError(errno.ENAMETOOLONG, "File name too long"), Path("/x/name"), 5)
    assert "name this long" in error.message
    assert "writable" not in (error.hint or "")


def test_a_document_is_json_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit({"rows": [{"a": float("inf"), "b": (float("nan"), 1.5)}], "c": -0.5})

    def refuse(word: str) -> None:
        raise AssertionError(word)

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == {"rows": [{"a": None, "b": [None, 1.5]}], "c": -0.5}
