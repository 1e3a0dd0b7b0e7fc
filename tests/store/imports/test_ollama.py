"""Looking into the manifests and blobs of Ollama, broken ones too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.store.caches import ollama
from tests.store.helpers import MIB, gguf
from tests.store.imports.foreign import BODY, LIST, MODEL, PROJECTOR, Shelf, look, names, reasons, sha256


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
