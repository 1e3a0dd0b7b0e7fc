"""A word is a file only when it looks like one: a folder named like a model changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.errors import UsageError
from appliance.operations.files import file_or_name


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_model_name_stays_one_whatever_lies_in_this_folder() -> None:
    Path("qwen3-8b").mkdir()
    Path("smollm2-135m-instruct").write_text("x")
    assert file_or_name("qwen3-8b") is None
    assert file_or_name("smollm2-135m-instruct") is None
    assert file_or_name("x" * 300) is None


def test_a_gguf_file_is_a_file() -> None:
    Path("a.gguf").write_bytes(b"GGUF")
    assert file_or_name("a.gguf") == Path("a.gguf")
    assert file_or_name("./a.gguf") == Path("a.gguf")


def test_a_file_under_another_ending_is_a_file_when_it_is_here() -> None:
    Path("m").mkdir()
    for name in ("pt.bin", "m/pt.bin", "m/x", "A.GGUF"):
        Path(name).write_bytes(b"PK")
        assert file_or_name(name) == Path(name)
    Path("qwen3.5").write_bytes(b"PK")
    for name in ("qwen3.5", "other.bin", "m/none", "m"):
        assert file_or_name(name) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "No model was named"),
        ("nope.gguf", "no file"),
        ("./nope", "no file"),
        (".//", "is a folder"),
        ("m/folder.gguf", "is a folder"),
        ("/dev/null", "is not a file"),
        ("~nosuchuser/x.gguf", "can't be looked at"),
        ("/" + "x" * 300, "can't be looked at"),
    ],
)
def test_a_path_that_is_none_is_said_with_what_to_do(text: str, words: str) -> None:
    Path("m/folder.gguf").mkdir(parents=True)
    with pytest.raises(UsageError, match=words) as caught:
        file_or_name(text)
    assert caught.value.hint
