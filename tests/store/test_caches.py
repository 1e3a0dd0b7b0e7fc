"""Looking into folders that other programs made, well-meaning and hostile ones."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.store import caches
from appliance.store.caches import Bounds, Candidate, Origin, Scan, huggingface, lmstudio, ollama
from tests.hub.server import Hub
from tests.store.helpers import MIB, gguf

BODY = gguf(MIB)
MODEL = "application/vnd.ollama.image.model"
PROJECTOR = "application/vnd.ollama.image.projector"
LIST = "application/vnd.ollama.manifest.list.v2+json"


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def put(path: Path, body: bytes = BODY) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


def look(origin: Origin, home: Path, bounds: Bounds | None = None, env: dict[str, str] | None = None) -> Scan:
    (found,) = caches.scan(env or {}, home, (origin,), bounds)
    return found


def names(scan: Scan) -> list[str]:
    return [candidate.name for candidate in scan.candidates]


def reasons(scan: Scan) -> str:
    return "\n".join(f"{item.path}: {item.why}" for item in scan.skipped)


# -- Hugging Face ----------------------------------------------------------------------------------


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


# -- LM Studio -------------------------------------------------------------------------------------


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


# -- Ollama ----------------------------------------------------------------------------------------


class Shelf:
    """An Ollama models folder, laid out as its own code does it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / ".ollama" / "models"
        (self.root / "blobs").mkdir(parents=True)

    def blob(self, body: bytes) -> str:
        put(self.root / "blobs" / f"sha256-{sha256(body)}", body)
        return f"sha256:{sha256(body)}"

    def layer(self, body: bytes, media: str = MODEL) -> dict[str, Any]:
        return {"mediaType": media, "digest": self.blob(body), "size": len(body)}

    def manifest(self, name: str, document: object, top: str = "manifests") -> Path:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return put(self.root / top / name, body)

    def model(self, name: str, *layers: dict[str, Any]) -> Path:
        config = self.layer(b"{}", "application/vnd.docker.container.image.v1+json")
        return self.manifest(name, {"schemaVersion": 2, "config": config, "layers": list(layers)})

    def look(self, bounds: Bounds | None = None) -> Scan:
        return look("ollama", self.home, bounds)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


class TestOllama:
    def test_the_name_is_its_own_and_the_digest_is_stated(self, shelf: Shelf) -> None:
        shelf.model(
            "registry.ollama.ai/library/llama3.2/3b",
            shelf.layer(BODY),
            shelf.layer(b"{{ .Prompt }}", "application/vnd.ollama.image.template"),
            shelf.layer(b"free", "application/vnd.ollama.image.license"),
        )
        (found,) = shelf.look().candidates
        assert (found.name, found.repo) == ("llama3.2:3b", None)
        assert [(p.role, p.sha256, p.size) for p in found.parts] == [("model", sha256(BODY), MIB)]
        assert found.main.path == shelf.root / "blobs" / f"sha256-{sha256(BODY)}"

    def test_a_projector_comes_along(self, shelf: Shelf) -> None:
        shelf.model(
            "registry.ollama.ai/library/seer/latest",
            shelf.layer(gguf(MIB, seed=2), PROJECTOR),
            shelf.layer(BODY),
        )
        (found,) = shelf.look().candidates
        assert [part.role for part in found.parts] == ["model", "mmproj"]

    def test_one_of_the_hub_says_from_where(self, shelf: Shelf) -> None:
        shelf.model("hf.co/Ann/Tiny-GGUF/Q4_K_M", shelf.layer(BODY))
        (found,) = shelf.look().candidates
        assert (found.name, found.repo) == ("hf.co/Ann/Tiny-GGUF:Q4_K_M", "Ann/Tiny-GGUF")

    def test_one_of_another_owner(self, shelf: Shelf) -> None:
        shelf.model("registry.ollama.ai/ann/tiny/latest", shelf.layer(BODY))
        assert names(shelf.look()) == ["ann/tiny:latest"]

    def test_a_lora_is_not_left_out_in_silence(self, shelf: Shelf) -> None:
        lora = shelf.layer(gguf(MIB, seed=3), "application/vnd.ollama.image.adapter")
        shelf.model("registry.ollama.ai/library/tuned/latest", shelf.layer(BODY), lora)
        found = shelf.look()
        assert found.candidates == ()
        assert "LoRA" in reasons(found)

    def test_a_model_in_another_format(self, shelf: Shelf) -> None:
        tensor = shelf.layer(b"x", "application/vnd.ollama.image.tensor; name=a; dtype=F16; shape=2,2")
        shelf.model("registry.ollama.ai/library/mlx/latest", tensor)
        assert "it has no GGUF model" in reasons(shelf.look())

    def test_a_blob_that_is_missing(self, shelf: Shelf) -> None:
        layer = shelf.layer(BODY)
        shelf.model("registry.ollama.ai/library/gone/latest", layer)
        (shelf.root / "blobs" / f"sha256-{sha256(BODY)}").unlink()
        found = shelf.look()
        assert found.candidates == ()
        assert "the blob of latest is missing" in reasons(found)

    def test_a_blob_that_is_too_short(self, shelf: Shelf) -> None:
        shelf.model("registry.ollama.ai/library/short/latest", shelf.layer(BODY) | {"size": 2 * MIB})
        assert f"its blob has {MIB} of {2 * MIB} bytes" in reasons(shelf.look())

    def test_a_list_of_manifests_gives_the_one_for_this_engine(self, shelf: Shelf) -> None:
        child = {"layers": [shelf.layer(BODY)]}
        digest = shelf.blob(json.dumps(child).encode())
        tensor = shelf.layer(b"x", "application/vnd.ollama.image.tensor")
        shelf.manifest(
            "registry.ollama.ai/library/both/latest",
            {
                "mediaType": LIST,
                "manifests": [{"runner": "mlx", "layers": [tensor]}, {"runner": "ollama", "digest": digest}],
            },
        )
        assert names(shelf.look()) == ["both:latest"]

    def test_the_newer_layout_links_into_the_blobs(self, shelf: Shelf) -> None:
        digest = shelf.blob(json.dumps({"layers": [shelf.layer(BODY)]}).encode())
        link = shelf.root / "manifests-v2/registry.ollama.ai/library/new/latest"
        link.parent.mkdir(parents=True)
        link.symlink_to(Path("../../../../blobs") / digest.replace(":", "-"))
        assert names(shelf.look()) == ["new:latest"]

    def test_its_variable_counts(self, shelf: Shelf, tmp_path: Path) -> None:
        shelf.model("registry.ollama.ai/library/tiny/latest", shelf.layer(BODY))
        moved = shelf.root.rename(tmp_path / "elsewhere")
        assert names(look("ollama", tmp_path / "home", env={"OLLAMA_MODELS": f'"{moved}"'})) == [
            "tiny:latest"
        ]

    def test_the_folder_of_the_service_is_looked_at_too(self, tmp_path: Path) -> None:
        assert Path("/usr/share/ollama/.ollama/models") in ollama.roots({}, tmp_path)

    @pytest.mark.parametrize(
        ("document", "why"),
        [
            (b"", "no JSON"),
            (b"\xff\xfe\0", "no JSON"),
            (b"[1, 2]", "no JSON object"),
            (b"[" * 400_000, "no JSON"),
            (b'{"layers": ' + b'{"a":' * 100_000, "no JSON"),
            (b'{"layers": 5}', "no manifest"),
            (b'{"layers": [5]}', "no manifest"),
            (b'{"layers": [{"mediaType": 5}]}', "no manifest"),
            (json.dumps({"layers": [{"mediaType": MODEL}]}).encode(), "digest"),
            (json.dumps({"layers": [{"mediaType": MODEL, "digest": "sha256:../../x"}]}).encode(), "digest"),
            (json.dumps({"layers": [{"mediaType": MODEL, "digest": {"a": 1}}]}).encode(), "digest"),
            (json.dumps({"layers": [{"mediaType": MODEL, "digest": "sha256:0"}] * 2}).encode(), "more"),
            (json.dumps({"layers": [{"mediaType": "x"}] * 5000}).encode(), "no manifest"),
            (b'{"size": ' + b"9" * 5000 + b"}", "no JSON"),
            (b" " * (2 << 20), "longer than"),
            (json.dumps({"mediaType": LIST, "manifests": {}}).encode(), "none of its"),
            (json.dumps({"mediaType": LIST, "manifests": [5, {"digest": "x"}]}).encode(), "none of its"),
        ],
    )  # fmt: skip
    def test_a_manifest_that_is_none(self, shelf: Shelf, document: bytes, why: str) -> None:
        shelf.manifest("registry.ollama.ai/library/bad/latest", document)
        shelf.model("registry.ollama.ai/library/good/latest", shelf.layer(BODY))
        found = shelf.look()
        assert names(found) == ["good:latest"]
        assert why in reasons(found)

    @settings(max_examples=150, deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(MODEL)
            | st.just("sha256:" + "a" * 64),
            lambda inner: st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["layers", "mediaType", "digest", "size", "manifests", "runner"]), inner
            ),
            max_leaves=12,
        )
    )  # fmt: skip
    def test_no_manifest_at_all_breaks_the_look(
        self, tmp_path_factory: pytest.TempPathFactory, tree: Any
    ) -> None:
        shelf = Shelf(tmp_path_factory.mktemp("any"))
        shelf.manifest(
            "registry.ollama.ai/library/any/latest", {"mediaType": LIST, "manifests": [tree, tree]}
        )
        shelf.manifest("registry.ollama.ai/library/any/two", {"layers": [tree]})
        shelf.manifest("registry.ollama.ai/library/any/three", tree)
        assert shelf.look().candidates == ()


# -- hostile folders -------------------------------------------------------------------------------


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


# -- paths -----------------------------------------------------------------------------------------


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
