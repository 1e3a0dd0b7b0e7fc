"""Looking into folders that mean harm, and at paths that the user names."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from appliance.store import caches
from appliance.store.caches import Bounds, Candidate, Scan
from tests.store.imports.foreign import BODY, look, names, put, reasons, sha256


class TestHostileFolders:
    @pytest.fixture
    def models(self, tmp_path: Path) -> Path:
        folder = tmp_path / ".lmstudio" / "models"
        put(folder / "good/good/good.gguf")
        return folder

    def scan(self, models: Path, bounds: Bounds | None = None) -> Scan:
        """Of LM Studio, whose folders have the freest form; the good model is always found."""
        found = look("lmstudio", models.parents[1], bounds)
        assert "good/good good.gguf" in names(found)
        return found

    def test_a_circle_of_links(self, models: Path) -> None:
        (models / "zz").mkdir()
        (models / "zz" / "loop").symlink_to(models)
        (models / "zz" / "self.gguf").symlink_to("self.gguf")
        found = self.scan(models)
        assert len(found.candidates) == 1
        assert "a link to a folder" in reasons(found)
        assert "self.gguf: too many levels of symbolic links" in reasons(found)

    def test_a_link_to_nowhere_and_one_out_of_the_folder(self, models: Path, tmp_path: Path) -> None:
        put(tmp_path / "private.gguf")
        (models / "good" / "good" / "gone.gguf").symlink_to(models / "nowhere.gguf")
        (models / "good" / "good" / "out.gguf").symlink_to(tmp_path / "private.gguf")
        found = self.scan(models)
        assert len(found.candidates) == 1
        assert "gone.gguf: the file is missing" in reasons(found)
        assert "out.gguf: a link that leaves" in reasons(found)

    def test_a_link_inside_the_folder_is_fine(self, models: Path) -> None:
        (models / "good" / "good" / "second.gguf").symlink_to("good.gguf")
        assert len(self.scan(models).candidates) == 2

    def test_a_pipe_is_not_waited_for(self, models: Path) -> None:
        os.mkfifo(models / "good" / "good" / "pipe.gguf")
        began = time.monotonic()
        found = self.scan(models)
        assert time.monotonic() - began < 5
        assert "pipe.gguf: it is no regular file" in reasons(found)

    def test_names_that_can_t_be_shown(self, models: Path) -> None:
        put(models / "good" / "good" / "evil\x1b[2J.gguf")
        put(models / "good" / "good" / "line\nbreak.gguf")
        (Path(os.fsdecode(os.fsencode(models) + b"/good/good/\xff\xfe.gguf"))).write_bytes(BODY)
        found = self.scan(models)
        assert len(found.candidates) == 1
        assert len(found.skipped) == 3
        assert all(item.path.isprintable() for item in found.skipped)

    def test_a_folder_with_such_a_name_is_shown_clean(self, models: Path) -> None:
        put(models / "a\x1b]0;owned\x07" / "b" / "x.gguf")
        shown = [name for name in names(self.scan(models)) if "x.gguf" in name]
        assert shown == ["a]0;owned/b x.gguf"]

    def test_files_that_only_look_like_models(self, models: Path) -> None:
        put(models / "good" / "good" / "page.gguf", b"<html>")
        put(models / "good" / "good" / "empty.gguf", b"")
        found = self.scan(models)
        assert len(found.candidates) == 1
        assert reasons(found).count("it is no GGUF file") == 2

    def test_a_tree_without_bottom(self, models: Path) -> None:
        put(models.joinpath(*["deep"] * 40) / "x.gguf")
        found = self.scan(models)
        assert len(found.candidates) == 1
        assert "too many folders deep" in reasons(found)

    def test_more_files_than_anybody_has(self, models: Path) -> None:
        for n in range(300):
            put(models / "many" / "many" / f"{n}.txt", b"")
        found = self.scan(models, Bounds(entries=200))
        assert "more than 200 files" in reasons(found)

    def test_more_reasons_than_anybody_reads(self, models: Path) -> None:
        for n in range(50):
            put(models / "good" / "good" / f"{n}.gguf", b"no")
        assert len(self.scan(models, Bounds(skipped=10)).skipped) == 10

    @pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
    def test_what_this_user_may_not_read(self, models: Path) -> None:
        put(models / "good" / "good" / "closed.gguf").chmod(0)
        (models / "closed").mkdir(mode=0)
        found = self.scan(models)
        assert reasons(found).count("permission denied") == 2

    def test_what_the_system_refuses(self, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (models / "closed").mkdir()
        real = os.scandir

        def refuse(path: Any) -> Any:
            if Path(path).name == "closed":
                raise PermissionError(13, "Permission denied")
            return real(path)

        monkeypatch.setattr(os, "scandir", refuse)
        assert "closed: permission denied" in reasons(self.scan(models))

    def test_a_file_where_a_folder_should_be(self, tmp_path: Path) -> None:
        put(tmp_path / ".ollama/models", b"")
        put(tmp_path / ".lmstudio", b"")
        put(tmp_path / ".cache/huggingface/hub", b"")
        for scan in caches.scan({}, tmp_path):
            assert scan.candidates == ()

    def test_split_names_with_impossible_numbers(self, models: Path) -> None:
        for name in ("x-00000-of-00002.gguf", "x-00003-of-00002.gguf", "x-00001-of-99999.gguf"):
            put(models / "odd" / "odd" / name)
        found = self.scan(models)
        assert all(len(candidate.models) == 1 for candidate in found.candidates)

    def test_nothing_is_changed(self, models: Path) -> None:
        before = sorted((str(p), p.lstat().st_mtime_ns, p.lstat().st_ctime_ns) for p in models.rglob("*"))
        self.scan(models)
        assert (
            sorted((str(p), p.lstat().st_mtime_ns, p.lstat().st_ctime_ns) for p in models.rglob("*"))
            == before
        )


class TestPaths:
    def one(self, path: Path) -> Candidate:
        (found,) = caches.scan_path(path).candidates
        return found

    def test_a_file_with_any_name(self, tmp_path: Path) -> None:
        found = self.one(put(tmp_path / "weights.bin"))
        assert (found.origin, found.name, found.repo) == ("path", "weights.bin", None)

    def test_any_part_of_a_set_means_the_set(self, tmp_path: Path) -> None:
        for n in (1, 2):
            put(tmp_path / f"big-0000{n}-of-00002.gguf")
        put(tmp_path / "other.gguf")
        found = self.one(tmp_path / "big-00002-of-00002.gguf")
        assert [part.path.name for part in found.parts] == [
            "big-00001-of-00002.gguf",
            "big-00002-of-00002.gguf",
        ]

    def test_of_a_folder_all_models(self, tmp_path: Path) -> None:
        put(tmp_path / "a.gguf")
        put(tmp_path / "deeper" / "b.gguf")
        assert names(caches.scan_path(tmp_path)) == ["a.gguf", "b.gguf"]

    def test_a_path_into_a_hugging_face_cache_tells_its_commit(self, tmp_path: Path) -> None:
        folder = tmp_path / "models--Ann--Tiny"
        blob = put(folder / "blobs" / sha256(BODY))
        link = folder / "snapshots" / ("c" * 40) / "Q8_0" / "tiny.gguf"
        link.parent.mkdir(parents=True)
        link.symlink_to(blob)
        found = self.one(link)
        assert (found.repo, found.revision, found.main.file) == ("Ann/Tiny", "c" * 40, "Q8_0/tiny.gguf")
        assert found.main.sha256 == sha256(BODY)

    def test_a_blob_of_ollama_states_its_hash(self, tmp_path: Path) -> None:
        assert self.one(put(tmp_path / f"sha256-{'a' * 64}")).main.sha256 == "a" * 64

    def test_what_is_no_model_says_why(self, tmp_path: Path) -> None:
        assert caches.scan_path(put(tmp_path / "x.gguf", b"PK")).skipped[0].why == "it is no GGUF file"
