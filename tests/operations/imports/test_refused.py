"""What is not taken in."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.errors import GgufError, NotVerified, UsageError
from appliance.operations.imports import import_path, named
from appliance.paths import Paths
from tests.operations.hubhouse import body, library
from tests.operations.imports.house import (
    in_lmstudio,
)


class TestRefused:
    @pytest.mark.parametrize(("key", "what"), [("adapter", "LoRA"), ("mmproj", "projector")])
    async def test_what_is_no_model(self, paths: Paths, home: Path, key: str, what: str) -> None:
        from tests.gguf import writer as w

        raw = w.gguf([
            w.entry("general.architecture", w.STRING, "llama"), w.entry("general.type", w.STRING, key)
        ], [w.tensor("a", (32, 8), 0, 0)]) + bytes(2048)  # fmt: skip
        with pytest.raises(UsageError, match=what):
            await import_path(library(paths), in_lmstudio(home, "a/b/x.gguf", raw))

    async def test_a_header_that_can_t_be_read(self, paths: Paths, home: Path) -> None:
        path = in_lmstudio(home, "a/b/x.gguf", b"GGUF\3\0\0\0" + b"\xff" * 64)
        with pytest.raises(GgufError, match=r"x\.gguf"):
            await import_path(library(paths), path)

    async def test_a_page(self, paths: Paths, home: Path) -> None:
        with pytest.raises(UsageError, match="no GGUF"):
            await import_path(library(paths), in_lmstudio(home, "a/b/x.gguf", b"<html>"))

    async def test_nothing_there(self, paths: Paths, home: Path) -> None:
        with pytest.raises(UsageError, match="no file"):
            await import_path(library(paths), home / "none.gguf")

    @pytest.mark.parametrize("word", ["", " "])
    async def test_an_empty_name_is_not_the_present_folder(
        self, paths: Paths, home: Path, monkeypatch: pytest.MonkeyPatch, word: str
    ) -> None:
        in_lmstudio(home, "x.gguf", body(1))
        monkeypatch.chdir(home / ".lmstudio/models")
        with pytest.raises(UsageError, match="empty name"):
            await named(library(paths), word)

    async def test_a_folder_of_several(self, paths: Paths, home: Path) -> None:
        in_lmstudio(home, "a/b/x.gguf", body(1))
        in_lmstudio(home, "a/b/y.gguf", body(2))
        with pytest.raises(UsageError, match="several models"):
            await import_path(library(paths), home / ".lmstudio")

    @pytest.mark.parametrize("name", ["UPPER", "with space", "../up", "", "x" * 200])
    async def test_an_id_that_is_none(self, paths: Paths, home: Path, name: str) -> None:
        path = in_lmstudio(home, "a/b/x.gguf", body(1))
        with pytest.raises(UsageError):
            await import_path(library(paths), path, id=name or " ")
        assert library(paths).store.list() == ()

    async def test_later_changed_it_is_not_served(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine.gguf", body(1))
        done = await import_path(shelf, path, how="reference")
        path.write_bytes(body(2))
        with pytest.raises(NotVerified):
            await shelf.require(done.ref)
        assert path.read_bytes() == body(2)
