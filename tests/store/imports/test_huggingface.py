"""Looking into a cache that huggingface_hub itself has made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from appliance.store.caches import huggingface
from tests.hub.server import Hub
from tests.store.helpers import MIB, gguf
from tests.store.imports.foreign import BODY, look, names, put, reasons, sha256


class TestHuggingFace:
    @pytest.fixture
    def hub(self) -> Hub:
        return Hub()

    def fetch(self, hub: Hub, home: Path, repo: str, files: dict[str, bytes], *wanted: str) -> str:
        """What huggingface_hub itself makes of a download."""
        from huggingface_hub import hf_hub_download

        made = hub.repositories.get(repo) or hub.add(repo)
        commit = made.commit(files)
        cache = home / ".cache" / "huggingface" / "hub"
        with hub.running():
            for name in wanted or tuple(files):
                hf_hub_download(repo, name, cache_dir=cache, endpoint=hub.url, token=False)
        return commit

    def test_repository_commit_file_and_stated_hash_are_known(self, hub: Hub, tmp_path: Path) -> None:
        commit = self.fetch(hub, tmp_path, "Ann/Tiny-GGUF", {"tiny-Q4_K_M.gguf": BODY, "README.md": b"hello"})
        (found,) = look("hf", tmp_path).candidates
        assert (found.origin, found.repo, found.revision) == ("hf", "Ann/Tiny-GGUF", commit)
        assert found.name == "Ann/Tiny-GGUF tiny-Q4_K_M.gguf"
        assert (found.main.file, found.main.sha256, found.main.size) == (
            "tiny-Q4_K_M.gguf", sha256(BODY), MIB,
        )  # fmt: skip
        assert found.main.path.is_symlink()
        assert found.main.path.read_bytes() == BODY

    def test_a_set_in_a_folder_of_the_repository(self, hub: Hub, tmp_path: Path) -> None:
        files = {f"Q8_0/big-0000{n}-of-00003.gguf": gguf(MIB, seed=n) for n in (1, 2, 3)}
        self.fetch(hub, tmp_path, "Ann/Big-GGUF", files)
        (found,) = look("hf", tmp_path).candidates
        assert [(part.file, part.part) for part in found.parts] == [
            (name, n) for n, name in enumerate(files, 1)
        ]
        assert found.size == 3 * MIB

    def test_a_set_without_all_parts_is_none(self, hub: Hub, tmp_path: Path) -> None:
        files = {f"big-0000{n}-of-00003.gguf": gguf(MIB, seed=n) for n in (1, 2, 3)}
        self.fetch(hub, tmp_path, "Ann/Big-GGUF", files, "big-00001-of-00003.gguf", "big-00003-of-00003.gguf")
        found = look("hf", tmp_path)
        assert found.candidates == ()
        assert "of 3 parts these are missing: 2" in reasons(found)

    def test_the_projector_beside_a_model(self, hub: Hub, tmp_path: Path) -> None:
        files = {
            "seer-Q4_K_M.gguf": BODY, "mmproj-seer-F32.gguf": gguf(MIB, seed=2),
            "mmproj-seer-F16.gguf": gguf(MIB, seed=3), "mmproj-seer-BF16.gguf": gguf(MIB, seed=4),
        }  # fmt: skip
        self.fetch(hub, tmp_path, "Ann/Seer-GGUF", files)
        (found,) = look("hf", tmp_path).candidates
        assert [(p.role, p.file) for p in found.parts] == [
            ("model", "seer-Q4_K_M.gguf"), ("mmproj", "mmproj-seer-F16.gguf"),
        ]  # fmt: skip
        assert [p.file for p in found.others] == ["mmproj-seer-BF16.gguf", "mmproj-seer-F32.gguf"]

    def test_two_commits_that_share_bytes_are_one_model_of_the_newer(self, hub: Hub, tmp_path: Path) -> None:
        self.fetch(hub, tmp_path, "Ann/Tiny-GGUF", {"tiny.gguf": BODY, "a.md": b"1"})
        newer = self.fetch(hub, tmp_path, "Ann/Tiny-GGUF", {"tiny.gguf": BODY, "a.md": b"2"})
        (found,) = look("hf", tmp_path).candidates
        assert found.revision == newer

    def test_two_commits_with_other_bytes_are_two(self, hub: Hub, tmp_path: Path) -> None:
        self.fetch(hub, tmp_path, "Ann/Tiny-GGUF", {"tiny.gguf": BODY})
        self.fetch(hub, tmp_path, "Ann/Tiny-GGUF", {"tiny.gguf": gguf(MIB, seed=2)})
        assert len({c.main.sha256 for c in look("hf", tmp_path).candidates}) == 2

    def test_what_a_kill_left_is_no_model(self, hub: Hub, tmp_path: Path) -> None:
        self.fetch(hub, tmp_path, "Ann/Tiny-GGUF", {"a.md": b"1"})
        blobs = tmp_path / ".cache/huggingface/hub/models--Ann--Tiny-GGUF/blobs"
        put(blobs / f"{sha256(BODY)}.0123abcd.incomplete")
        assert look("hf", tmp_path).candidates == ()

    def test_without_links_the_files_are_in_the_snapshot_and_state_nothing(self, tmp_path: Path) -> None:
        commit = "c" * 40
        put(tmp_path / f".cache/huggingface/hub/models--Ann--Tiny/snapshots/{commit}/tiny.gguf")
        (found,) = look("hf", tmp_path).candidates
        assert (found.repo, found.revision, found.main.sha256) == ("Ann/Tiny", commit, None)

    @pytest.mark.parametrize(
        ("variable", "below"),
        [("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub"),
         ("XDG_CACHE_HOME", "huggingface/hub")],
    )  # fmt: skip
    def test_its_variables_count(self, tmp_path: Path, variable: str, below: str) -> None:
        root = tmp_path / "elsewhere"
        put(root / below / f"models--Ann--Tiny/snapshots/{'c' * 40}/tiny.gguf")
        assert names(look("hf", tmp_path / "home", env={variable: str(root)})) == ["Ann/Tiny tiny.gguf"]

    def test_same_roots_as_the_library_itself(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub import constants

        home = Path(os.path.expanduser("~"))
        assert huggingface.roots(os.environ, home) == (Path(constants.HF_HUB_CACHE),)

    def test_a_blob_that_is_gone(self, hub: Hub, tmp_path: Path) -> None:
        self.fetch(hub, tmp_path, "Ann/Tiny-GGUF", {"tiny.gguf": BODY})
        shutil.rmtree(tmp_path / ".cache/huggingface/hub/models--Ann--Tiny-GGUF/blobs")
        found = look("hf", tmp_path)
        assert found.candidates == ()
        assert "is missing" in reasons(found)

    def test_a_link_out_of_the_cache_is_not_followed(self, tmp_path: Path) -> None:
        secret = put(tmp_path / "secret.gguf")
        snapshot = tmp_path / f".cache/huggingface/hub/models--Ann--Tiny/snapshots/{'c' * 40}"
        snapshot.mkdir(parents=True)
        (snapshot / "tiny.gguf").symlink_to(secret)
        found = look("hf", tmp_path)
        assert found.candidates == ()
        assert "a link that leaves" in reasons(found)
