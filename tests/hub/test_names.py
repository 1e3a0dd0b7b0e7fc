"""Names of files and repositories: what they tell, and what is no name."""

from __future__ import annotations

import pytest

from appliance import hub
from appliance.errors import UsageError
from appliance.hub import HubName, RepoFile

PIN = "ab" * 32


@pytest.mark.parametrize(
    ("path", "label", "stem"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M", "Qwen3-8B"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "Q4_K_M", "qwen2.5-7b-instruct"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1", "SmolLM2-135M-Instruct"),
        ("gemma-4-E2B_q4_0-it.gguf", "Q4_0", "gemma-4-E2B-it"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4", "gpt-oss-20b"),
        ("UD-Q4_K_XL/Big-UD-Q4_K_XL-00002-of-00003.gguf", "UD-Q4_K_XL", "Big"),
        ("BF16/model-00001-of-00002.gguf", "BF16", "model"),
        ("m-fp16.gguf", "F16", "m"),
        ("m-IQ2_XXS.gguf", "IQ2_XXS", "m"),
        ("m-Q4_0_4_8.gguf", "Q4_0_4_8", "m"),
        ("Q2-Q8_0.gguf", "Q8_0", "Q2"),
        ("model.gguf", None, "model"),
        ("Qwen3-8B.gguf", None, "Qwen3-8B"),
    ],
)
def test_a_file_name_tells_the_quantisation(path: str, label: str | None, stem: str) -> None:
    assert (hub.label_of(path), hub.stem_of(path)) == (label, stem)


def test_parts_are_joined_projectors_set_apart_and_calibration_left_out() -> None:
    def file(path: str, size: int) -> RepoFile:
        return RepoFile(path, size, PIN)

    quants, projectors = hub.grouped(
        [
            file("m-Q8_0-00002-of-00002.gguf", 30),
            file("m-Q8_0-00001-of-00002.gguf", 20),
            file("m-F16-00001-of-00003.gguf", 90),
            file("m-Q4_K_M.gguf", 10),
            file("mmproj-m-F16.gguf", 3),
            file("m-imatrix.gguf", 1),
            file("README.md", 1),
            RepoFile("m-Q2_K.gguf", 5, None),
        ]
    )
    assert [(q.label, q.size, q.complete, q.pinnable) for q in quants] == [
        ("Q2_K", 5, True, False),
        ("Q4_K_M", 10, True, True),
        ("Q8_0", 50, True, True),
        ("F16", 90, False, False),
    ]
    assert [f.path for f in quants[2].files] == ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]
    assert [f.path for f in projectors] == ["mmproj-m-F16.gguf"]


def test_names_of_the_hub() -> None:
    assert hub.parse("hf:o/r/a-Q4.gguf") == HubName("o/r", None, "a-Q4.gguf")
    assert hub.parse("hf:o/r@refs%2Fpr%2F1/sub/a.gguf") == HubName("o/r", "refs/pr/1", "sub/a.gguf")
    assert hub.parse("o/r") == HubName("o/r")
    assert hub.parse("hf:o/r@v1") == HubName("o/r", "v1")
    for bad in ("hf:", "hf:o", "hf:o/", "hf:/r/f", "hf:o/r@/f", "hf:o o/r/f", "hf:o/../f"):
        with pytest.raises(UsageError):
            hub.parse(bad)


def test_an_address_of_the_hub_is_a_name_too() -> None:
    base = "https://hub.example"
    assert hub.of_url(f"{base}/o/r/resolve/main/a%20b.gguf?download=true", base) == HubName(
        "o/r", "main", "a b.gguf"
    )
    assert hub.of_url(f"{base}/o/r/blob/v1/sub/a.gguf", base) == HubName("o/r", "v1", "sub/a.gguf")
    assert hub.of_url("https://other.example/o/r/resolve/main/a.gguf", base) is None
    assert hub.of_url(f"{base}/o/r/tree/main/a.gguf", base) is None
    assert hub.of_url(f"{base}.evil.example/o/r/resolve/main/a.gguf", base) is None
    assert hub.of_url("https://m.example/hf/o/r/resolve/main/a.gguf", "https://m.example/hf") == HubName(
        "o/r", "main", "a.gguf"
    )
