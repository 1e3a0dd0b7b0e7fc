"""Taking in what other programs have: as what it is, never as what a name claims."""

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

from appliance.catalog import FileSource, HfSource
from appliance.errors import GgufError, NotVerified, UsageError
from appliance.operations.imports import Imported, Survey, candidates, import_path
from appliance.operations.models import Library
from appliance.paths import Paths
from tests.hub.server import Hub
from tests.operations.hubhouse import body, entry, library, sha256

COMMIT = "c" * 40


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home folder in which other programs keep their models."""
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


def put(path: Path, raw: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def in_lmstudio(home: Path, name: str, raw: bytes) -> Path:
    return put(home / ".lmstudio" / "models" / name, raw)


def in_hf(
    home: Path, repo: str, name: str, raw: bytes, commit: str = COMMIT, blob: str | None = None
) -> Path:
    """As huggingface_hub lays it out; `blob` is what the cache says of the bytes."""
    folder = home / ".cache/huggingface/hub" / f"models--{repo.replace('/', '--')}"
    stored = put(folder / "blobs" / (blob or sha256(raw)), raw)
    link = folder / "snapshots" / commit / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(stored, link.parent))
    return link


def in_ollama(home: Path, name: str, raw: bytes) -> Path:
    root = home / ".ollama" / "models"
    model, _, tag = name.partition(":")
    layer = {
        "mediaType": "application/vnd.ollama.image.model",
        "digest": f"sha256:{sha256(raw)}",
        "size": len(raw),
    }
    put(
        root / "manifests/registry.ollama.ai/library" / model / tag,
        json.dumps({"schemaVersion": 2, "layers": [layer]}).encode(),
    )
    return put(root / "blobs" / f"sha256-{sha256(raw)}", raw)


async def survey(shelf: Library, home: Path) -> Survey:
    return await candidates(shelf, env={}, home=home)


def with_projector(text: str, raw: bytes) -> str:
    """The entry with a second file, `mmproj-S.gguf`."""
    pinned = f'name = "mmproj-S.gguf", role = "mmproj", size = {len(raw)}, sha256 = "{sha256(raw)}"'
    return text.replace("}]", f"}}, {{ {pinned} }}]", 1)


def listing(paths: Paths, text: str) -> Library:
    put(paths.user_catalog, text.encode())
    return library(paths)


def same(done: Imported, path: Path) -> bool:
    return done.stored is not None and done.stored.main.samefile(path)


class TestWhatIsThere:
    async def test_of_three_programs_with_what_each_seems_to_be(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        in_hf(home, "Ann/M-GGUF", "M-Q4_K_M.gguf", body(1))
        in_lmstudio(home, "Ann/M-GGUF/M-Q4_K_M.gguf", body(1))
        in_ollama(home, "m:latest", body(1))
        in_ollama(home, "other:latest", body(2))
        found = await survey(shelf, home)
        assert {(f.candidate.origin, f.candidate.name, f.candidate.catalog_ref) for f in found.found} == {
            ("hf", "Ann/M-GGUF M-Q4_K_M.gguf", "listed:Q4_K_M"),
            ("lmstudio", "Ann/M-GGUF M-Q4_K_M.gguf", "listed:Q4_K_M"),
            ("ollama", "m:latest", "listed:Q4_K_M"),
            ("ollama", "other:latest", None),
        }
        assert {(f.state, f.how, f.why) for f in found.found} == {("new", "link", None)}

    async def test_a_name_with_another_size_is_no_match(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        in_lmstudio(home, "Ann/M-GGUF/M-Q4_K_M.gguf", body(1, n_bytes=8192))
        assert [f.candidate.catalog_ref for f in (await survey(shelf, home)).found] == [None]

    async def test_a_stated_hash_outweighs_repository_and_name(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        in_hf(
            home, "Ann/M-GGUF", "M-Q4_K_M.gguf", body(2)
        )  # an older or newer file of the same name and size
        assert [f.candidate.catalog_ref for f in (await survey(shelf, home)).found] == [None]

    async def test_what_was_taken_is_here(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1))
        done = await import_path(shelf, path)
        (found,) = (await survey(shelf, home)).found
        assert (found.state, found.candidate.catalog_ref) == ("here", done.ref.ref)

    async def test_nothing_anywhere(self, paths: Paths, home: Path) -> None:
        assert await survey(library(paths), home) == Survey((), (), ())


class TestListed:
    async def test_is_taken_in_under_its_ref(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        path = in_ollama(home, "whatever:7b", body(1))
        done = await import_path(shelf, path)
        assert (done.ref.ref, done.listed, done.how) == ("listed:Q4_K_M", True, "link")
        assert done.stored is not None
        assert done.stored.main.name == "M-Q4_K_M.gguf"
        assert same(done, path)
        assert (await shelf.require(shelf.resolve("listed"))).ref == "listed:Q4_K_M"

    async def test_whatever_it_is_called(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        done = await import_path(shelf, in_lmstudio(home, "Eve/Other-GGUF/other-Q8_0.gguf", body(1)))
        assert done.ref.ref == "listed:Q4_K_M"

    async def test_under_a_name_of_one_s_own_when_asked(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        done = await import_path(shelf, in_lmstudio(home, "a/b/x.gguf", body(1)), id="mine")
        assert (done.ref.ref, done.listed) == ("mine:Q4_K_M", False)

    async def test_the_projector_of_the_pin_is_found_among_several(self, paths: Paths, home: Path) -> None:
        seer, right, wrong = body(1), body(2, n_bytes=5000), body(3, n_bytes=5000)
        text = entry("seer", "Ann/S", COMMIT, "S-Q4_K_M.gguf", seer)
        shelf = listing(paths, with_projector(text, right))
        path = in_lmstudio(home, "a/s/whatever.gguf", seer)
        in_lmstudio(home, "a/s/mmproj-f16.gguf", wrong)
        in_lmstudio(home, "a/s/mmproj-bf16.gguf", right)
        done = await import_path(shelf, path)
        assert done.missing == ()
        assert done.stored is not None
        assert [f.path.name for f in done.stored.files] == ["S-Q4_K_M.gguf", "mmproj-S.gguf"]

    async def test_without_its_projector_it_waits_for_a_pull_of_only_that(
        self, paths: Paths, home: Path, hub: Hub, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seer, sight = body(1), body(2, n_bytes=5000)
        commit = hub.add("Ann/S").commit({"S-Q4_K_M.gguf": seer, "mmproj-S.gguf": sight})
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        text = entry("seer", "Ann/S", commit, "S-Q4_K_M.gguf", seer)
        shelf = listing(paths, with_projector(text, sight))
        path = in_lmstudio(home, "a/s/s.gguf", seer)
        done = await import_path(shelf, path)
        assert done.stored is None
        assert [pin.base_name for pin in done.missing] == ["mmproj-S.gguf"]
        stored = await shelf.pull(done.ref)
        assert stored.main.samefile(path)
        assert [p for p in hub.paths if "resolve" in p and "S-Q4" in p] == []


class TestNew:
    async def test_gets_an_entry_in_the_user_s_file_and_can_be_used(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "Ann/Mine-GGUF/Mine-7B-Q4_K_M.gguf", body(1))
        done = await import_path(shelf, path)
        assert (done.ref.ref, done.listed, done.how) == ("mine-7b:Q4_K_M", False, "link")
        again = library(paths)  # from the files alone
        ref = again.resolve("mine-7b")
        assert ref.variant.pin == "user"
        assert ref.variant.source == FileSource(kind="file", path=str(path))
        assert (ref.model.context, ref.model.license, ref.model.use) == (2048, "mit", ("chat",))
        assert (await again.require(ref)).main.samefile(path)

    async def test_of_a_cache_that_told_the_truth_comes_from_the_hub(self, paths: Paths, home: Path) -> None:
        link = in_hf(home, "Ann/Mine-GGUF", "sub/Mine-Q4_K_M.gguf", body(1))
        done = await import_path(library(paths), link)
        assert done.ref.variant.source == HfSource(kind="hf", repo="Ann/Mine-GGUF", revision=COMMIT)
        assert done.ref.variant.main.name == "sub/Mine-Q4_K_M.gguf"

    async def test_of_a_cache_that_lied_is_what_it_is(self, paths: Paths, home: Path) -> None:
        shelf = listing(paths, entry("listed", "Ann/M-GGUF", COMMIT, "M-Q4_K_M.gguf", body(1)))
        link = in_hf(home, "Ann/M-GGUF", "M-Q4_K_M.gguf", body(2), blob=sha256(body(1)))
        (found,) = (await survey(shelf, home)).found
        assert found.candidate.catalog_ref == "listed:Q4_K_M"  # so it says
        done = await import_path(shelf, found.candidate)
        assert done.ref.id != "listed"
        assert isinstance(done.ref.variant.source, FileSource)
        assert done.ref.variant.main.sha256 == sha256(body(2))
        assert shelf.store.find("listed:Q4_K_M") is None
        assert same(done, link)

    async def test_named_like_a_model_of_the_catalog_it_gets_another_name(
        self, paths: Paths, home: Path
    ) -> None:
        shelf = library(paths)
        package = next(iter(shelf.catalog.models.values()))
        done = await import_path(shelf, in_lmstudio(home, f"a/b/{package.id}-Q4_K_M.gguf", body(1)))
        assert done.ref.id == f"{package.id}-imported"
        assert library(paths).catalog.models[package.id] == package

    async def test_named_like_a_family_it_gets_another_name(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        families = {model.family for model in shelf.catalog.models.values()}
        family = next(iter(families - set(shelf.catalog.models)))
        done = await import_path(shelf, in_lmstudio(home, f"a/b/{family}-Q4_K_M.gguf", body(1)))
        assert done.ref.id == f"{family}-imported"

    async def test_a_taken_name_that_was_asked_for_is_refused(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        package = next(iter(shelf.catalog.models))
        path = in_lmstudio(home, "a/b/x.gguf", body(1))
        with pytest.raises(UsageError, match="another model"):
            await import_path(shelf, path, id=package)
        assert shelf.store.list() == ()
        assert not paths.user_catalog.exists()

    async def test_another_quant_of_one_s_own_model_joins_it(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        await import_path(shelf, in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1)))
        await import_path(shelf, in_lmstudio(home, "a/b/mine-Q8_0.gguf", body(2, file_type=7)))
        assert [v.quant for v in library(paths).catalog.models["mine"].variants] == ["Q4_K_M", "Q8_0"]

    async def test_other_bytes_of_the_same_quant_do_not(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        await import_path(shelf, in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1)))
        done = await import_path(shelf, in_lmstudio(home, "c/d/mine-Q4_K_M.gguf", body(2)))
        assert done.ref.id == "mine-imported"

    async def test_once_more_is_the_same_model(self, paths: Paths, home: Path) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1))
        first = await import_path(shelf, path)
        again = await import_path(shelf, path)
        assert (again.ref.ref, again.how, again.listed) == (first.ref.ref, None, True)

    async def test_comments_of_the_user_s_file_stay(self, paths: Paths, home: Path) -> None:
        shelf = listing(
            paths, "# mine\n" + entry("listed", "Ann/M", COMMIT, "M.gguf", body(9)) + "# the end\n"
        )
        await import_path(shelf, in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1)))
        text = paths.user_catalog.read_text()
        assert "# mine\n" in text
        assert "# the end\n" in text
        assert set(library(paths).catalog.models) >= {"listed", "mine"}

    async def test_a_catalog_that_can_t_be_written_leaves_no_model_without_a_name(
        self, paths: Paths, home: Path
    ) -> None:
        shelf = library(paths)
        path = in_lmstudio(home, "a/b/mine-Q4_K_M.gguf", body(1))
        put(paths.user_catalog, b"this is not TOML")
        with pytest.raises(UsageError):
            await import_path(shelf, path)
        assert shelf.store.list() == ()
        assert path.read_bytes() == body(1)

    async def test_a_set_and_its_projector(self, paths: Paths, home: Path) -> None:
        for n in (1, 2):
            in_lmstudio(home, f"a/big/big-Q4_K_M-0000{n}-of-00002.gguf", body(n))
        in_lmstudio(home, "a/big/mmproj-big-f16.gguf", body(3))
        first = home / ".lmstudio/models/a/big/big-Q4_K_M-00001-of-00002.gguf"
        done = await import_path(library(paths), first)
        assert [(f.role, f.part) for f in done.ref.variant.files] == [
            ("model", 1),
            ("model", 2),
            ("mmproj", None),
        ]
        assert done.ref.model.use == ("chat", "vision")
        assert done.ref.ref == "big:Q4_K_M"

    @pytest.mark.parametrize(
        ("name", "file_type", "quant"),
        [
            ("m-Q8_0.gguf", 15, "Q4_K_M"),  # the name lies, the header counts
            ("m-UD-Q4_K_XL.gguf", 15, "UD-Q4_K_XL"),  # finer, of the same width
            ("m-IQ4_XS.gguf", 15, "Q4_K_M"),
            ("m.gguf", 7, "Q8_0"),
            ("m-Q5_K_M.gguf", 999, "F32"),  # a type unknown here: what the bytes are
        ],
    )
    async def test_quant(self, paths: Paths, home: Path, name: str, file_type: int, quant: str) -> None:
        path = in_lmstudio(home, f"a/b/{name}", body(1, file_type=file_type))
        assert (await import_path(library(paths), path)).ref.quant == quant

    @pytest.mark.parametrize(
        ("name", "model_id"),
        [
            ("llama3.2:3b", "llama3.2-3b"),
            ("ours2.5:7b-instruct-q4_K_M", "ours2.5-7b-instruct"),
            ("mine:latest", "mine"),
        ],
    )
    async def test_id_of_ollama(self, paths: Paths, home: Path, name: str, model_id: str) -> None:
        shelf = library(paths)
        in_ollama(home, name, body(1))
        (found,) = (await survey(shelf, home)).found
        done = await import_path(shelf, found.candidate)
        assert done.ref.id == model_id
        assert done.stored is not None
        assert done.stored.main.name == f"{model_id}-Q4_K_M.gguf"  # not the name of a blob

    @pytest.mark.parametrize(
        ("name", "model_id"),
        [
            ("Mine 7B (final).Q4_K_M.gguf", "mine-7b-final"),
            ("model.gguf", "inner-name"),
            ("ggml-model-q4_0.gguf", "inner-name"),
            ("Größe-7B.gguf", "gr-e-7b"),
            ("模型.gguf", "inner-name"),
        ],
    )
    async def test_id_of_a_file(self, paths: Paths, home: Path, name: str, model_id: str) -> None:
        path = in_lmstudio(home, f"a/b/{name}", body(1))
        assert (await import_path(library(paths), path)).ref.id == model_id


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


class TestCommand:
    def run(self, paths: Paths, home: Path, *words: str, rc: int = 0) -> subprocess.CompletedProcess[str]:
        root = Path(__file__).parents[2]
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
