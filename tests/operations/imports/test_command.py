"""`appliance models import`, from outside."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.paths import Paths
from tests.operations.hubhouse import body, library
from tests.operations.imports.house import (
    in_lmstudio,
    in_ollama,
    put,
)


class TestCommand:
    def run(self, paths: Paths, home: Path, *words: str, rc: int = 0) -> subprocess.CompletedProcess[str]:
        root = Path(__file__).parents[3]
        env = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ} | {
            "HOME": str(home), "APPLIANCE_HOME": str(paths.data.parent), "PYTHONPATH": str(root),
        }  # fmt: skip
        ran = subprocess.run(
            [sys.executable, "-m", "appliance.cli.main", "models", "import", *words],
            capture_output=True, text=True, env=env, cwd=home, timeout=120, check=False,
        )  # fmt: skip
        assert ran.returncode == rc, ran.stderr
        assert "Traceback" not in ran.stderr
        return ran

    def document(self, paths: Paths, home: Path, *words: str, rc: int = 0) -> Any:
        return json.loads(self.run(paths, home, *words, "--json", rc=rc).stdout)

    def test_lists_and_takes_all_and_lists_again(self, paths: Paths, home: Path) -> None:
        in_ollama(home, "mine:7b", body(1))
        in_lmstudio(home, "Ann/Other/other-Q4_K_M.gguf", body(2))
        (home / ".lmstudio/models/Ann/Other/gone.gguf").symlink_to("nowhere")
        shown = self.run(paths, home)
        assert "mine:7b" in shown.stdout
        assert "hard link" in shown.stdout
        assert "Nothing is verified yet" in shown.stdout
        assert "the file is missing" in shown.stderr
        done = self.document(paths, home, "--all")
        assert {(row["ref"], row["how"]) for row in done["imported"]} == {
            ("mine-7b:Q4_K_M", "link"), ("other:Q4_K_M", "link"),
        }  # fmt: skip
        assert done["failed"] == []
        assert {row["state"] for row in self.document(paths, home)["found"]} == {"here"}
        assert "here already" in self.run(paths, home, "--all").stdout

    def test_by_the_name_that_the_list_shows(self, paths: Paths, home: Path) -> None:
        in_ollama(home, "mine:7b", body(1))
        assert "mine-7b:Q4_K_M is verified and linked" in self.run(paths, home, "mine:7b").stdout

    def test_only_from_one_program(self, paths: Paths, home: Path) -> None:
        in_ollama(home, "mine:7b", body(1))
        in_lmstudio(home, "Ann/Other/other-Q4_K_M.gguf", body(2))
        done = self.document(paths, home, "--all", "--from", "ollama")
        assert [row["ref"] for row in done["imported"]] == ["mine-7b:Q4_K_M"]

    def test_goes_on_after_a_failure_and_ends_with_1(self, paths: Paths, home: Path) -> None:
        good = in_lmstudio(home, "a/b/good.gguf", body(1))
        bad = put(home / "bad.gguf", b"GGUF\3\0\0\0" + b"\xff" * 64)
        ran = self.run(paths, home, str(bad), str(good), "/none.gguf", rc=1)
        assert "good:Q4_K_M is verified" in ran.stdout
        assert "2 of 3 could not be imported" in ran.stderr
        assert "bad.gguf" in ran.stderr
        assert "/none.gguf" in ran.stderr

    def test_one_failure_is_its_own_error(self, paths: Paths, home: Path) -> None:
        bad = put(home / "bad.gguf", b"GGUF\3\0\0\0" + b"\xff" * 64)
        assert "bad.gguf" in self.run(paths, home, str(bad), rc=4).stderr
        document = self.document(paths, home, str(bad), rc=4)
        assert document["failed"][0]["error"]["code"] == "gguf"

    def test_by_reference_says_that_the_file_is_needed(self, paths: Paths, home: Path) -> None:
        path = in_lmstudio(home, "a/b/mine.gguf", body(1))
        ran = self.run(paths, home, str(path), "--how", "reference")
        assert f"used where it is: {path}" in ran.stdout

    def test_id_and_quant(self, paths: Paths, home: Path) -> None:
        path = in_lmstudio(home, "a/b/mine.gguf", body(1))
        done = self.document(paths, home, str(path), "--id", "house-model", "--quant", "Q9")
        assert done["imported"][0]["ref"] == "house-model:Q9"

    @pytest.mark.parametrize("words", [("--how", "copy"), ("--id", "x"), ("--all", "PATH")])
    def test_words_that_make_no_sense(self, paths: Paths, home: Path, words: tuple[str, ...]) -> None:
        self.run(paths, home, *words, rc=2)

    def test_two_models_can_t_have_one_id(self, paths: Paths, home: Path) -> None:
        in_lmstudio(home, "a/b/x.gguf", body(1))
        in_lmstudio(home, "a/b/y.gguf", body(2))
        self.run(paths, home, str(home / ".lmstudio"), "--id", "one", rc=2)
        assert library(paths).store.list() == ()

    def test_nothing_there(self, paths: Paths, home: Path) -> None:
        assert "No other program's models are here" in self.run(paths, home).stdout
        assert self.document(paths, home) == {"found": [], "skipped": [], "looked": []}


def test_a_real_model_out_of_ollama_s_folder(paths: Paths, home: Path, smollm2_path: Path) -> None:
    """Hard link (or copy, where the test cache is on another disk) of SmolLM2 as Ollama has it."""
    digest = hashlib.file_digest(smollm2_path.open("rb"), "sha256").hexdigest()
    blob = home / ".ollama/models/blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True)
    try:
        os.link(smollm2_path, blob)
    except OSError:
        shutil.copyfile(smollm2_path, blob)
    layer = {
        "mediaType": "application/vnd.ollama.image.model",
        "digest": f"sha256:{digest}",
        "size": blob.stat().st_size,
    }
    put(
        home / ".ollama/models/manifests/registry.ollama.ai/library/smollm2/135m",
        json.dumps({"layers": [layer]}).encode(),
    )
    done = TestCommand().document(paths, home, "smollm2:135m")
    (row,) = done["imported"]
    assert (row["ref"], row["how"], row["listed"]) == ("smollm2-135m-instruct:Q4_1", "link", True)
    assert Path(row["stored"]).samefile(blob)
