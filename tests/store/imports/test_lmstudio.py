"""Looking into the folders of LM Studio."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from appliance.store.caches import Bounds, Scan, lmstudio
from tests.store.imports.foreign import look, names, put


class TestLmStudio:
    def test_folders_claim_a_repository_and_nothing_states_a_hash(self, tmp_path: Path) -> None:
        put(tmp_path / ".lmstudio/models/infra-ai/ocelot-v1/ocelot-v1-q4_0.gguf")
        (found,) = look("lmstudio", tmp_path).candidates
        assert (found.repo, found.revision, found.main.sha256) == ("infra-ai/ocelot-v1", None, None)
        assert found.name == "infra-ai/ocelot-v1 ocelot-v1-q4_0.gguf"

    def test_the_projector_goes_with_every_model_beside_it(self, tmp_path: Path) -> None:
        folder = tmp_path / ".lmstudio/models/a/seer"
        for name in ("seer-Q4_K_M.gguf", "seer-Q8_0.gguf", "mmproj-model-f16.gguf"):
            put(folder / name)
        found = look("lmstudio", tmp_path).candidates
        assert [[part.role for part in c.parts] for c in found] == [["model", "mmproj"]] * 2

    def test_a_projector_alone_is_no_model(self, tmp_path: Path) -> None:
        put(tmp_path / ".lmstudio/models/a/seer/mmproj-model-f16.gguf")
        assert look("lmstudio", tmp_path).candidates == ()

    def test_downloads_under_way_are_none(self, tmp_path: Path) -> None:
        put(tmp_path / ".lmstudio/models/a/b/downloading_x.gguf.part")
        put(tmp_path / ".lmstudio/models/a/b/model.safetensors")
        assert look("lmstudio", tmp_path) == Scan("lmstudio", tmp_path / ".lmstudio/models", (), ())

    def test_the_chosen_folder_of_the_home_that_the_pointer_names(self, tmp_path: Path) -> None:
        home, chosen = tmp_path / "lm", tmp_path / "big disk"
        (tmp_path / ".lmstudio-home-pointer").write_text(f"{home}\n")
        put(home / "settings.json", json.dumps({"downloadsFolder": str(chosen)}).encode())
        put(chosen / "a/b/x.gguf")
        assert names(look("lmstudio", tmp_path)) == ["a/b x.gguf"]

    def test_the_old_home(self, tmp_path: Path) -> None:
        put(tmp_path / ".cache/lm-studio/models/a/b/x.gguf")
        assert names(look("lmstudio", tmp_path)) == ["a/b x.gguf"]

    @pytest.mark.parametrize(
        "text",
        [b"", b"relative/path", b"/with\0zero", b"/two\nlines", b"\xff\xfe", b"x" * 9000],
        ids=["empty", "relative", "zero", "lines", "bytes", "long"],
    )
    def test_a_pointer_that_points_nowhere(self, tmp_path: Path, text: bytes) -> None:
        (tmp_path / ".lmstudio-home-pointer").write_bytes(text)
        put(tmp_path / ".lmstudio/models/a/b/x.gguf")
        assert names(look("lmstudio", tmp_path)) == ["a/b x.gguf"]

    @pytest.mark.parametrize(
        "document", ["", "[]", "{", '{"downloadsFolder": 5}', '{"downloadsFolder": "here"}', "[" * 500_000]
    )
    def test_settings_that_are_none(self, tmp_path: Path, document: str) -> None:
        put(tmp_path / ".lmstudio/settings.json", document.encode())
        assert lmstudio.roots(tmp_path, Bounds())[0] == tmp_path / ".lmstudio/models"

    def test_one_folder_under_two_names_is_looked_at_once(self, tmp_path: Path) -> None:
        put(tmp_path / ".lmstudio/models/a/b/x.gguf")
        (tmp_path / ".cache").mkdir()
        (tmp_path / ".cache/lm-studio").symlink_to(tmp_path / ".lmstudio")
        assert names(look("lmstudio", tmp_path)) == ["a/b x.gguf"]
