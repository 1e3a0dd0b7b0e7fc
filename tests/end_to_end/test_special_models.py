"""Models that are more than text, as their user starts them."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

from tests.end_to_end.appliance import MODEL, Home, Running, until
from tests.engines.bert_file import CLS, CONTEXT, RANK, write_bert
from tests.engines.lora_file import write_lora


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def configured(home: Home, text: str) -> None:
    file = home.root / "config" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def engine(up: Running) -> dict[str, Any]:
    return dict(up.raw("GET", "/api/status")[1]["engines"][0])


def test_an_adapter_and_a_draft_model_of_the_settings(home: Home, tmp_path: Path) -> None:
    file = write_lora(tmp_path / "polite.gguf")
    entry = f'{{ file = "{file}", sha256 = "{sha256(file)}", scale = 0.5 }}'
    configured(home, f'[overrides."{MODEL}"]\nlora = [{entry}]\ndraft = "nonsuch"\n')
    with home.up(MODEL, "--ctx", "512", "--parallel", "1") as up:
        row = engine(up)
        assert [(one["name"], one["scale"], one["sha256"]) for one in row["adapters"]] == [
            ("polite.gguf", 0.5, sha256(file))
        ]
        (note,) = (one for one in up.status()["notes"] if one["code"] == "draft_left_out")
        assert "nonsuch" in note["detail"]
        with file.open("r+b") as opened:
            opened.seek(-1, os.SEEK_END)
            opened.write(b"\x7f")
        os.kill(row["pid"], signal.SIGKILL)
        failed = until(
            lambda: (now := engine(up))["state"] == "failed" and now, 60, "it is not started again"
        )
        assert "is not the adapter that config.toml states" in failed["error"]
    refused = home.run("up", MODEL, "--ctx", "512", "--json", "--port", "0")
    assert refused.code == 4, refused.err
    assert sha256(file) in refused.err + refused.out


def test_a_reranker_and_an_embedder_start_in_their_mode(home: Home, tmp_path: Path) -> None:
    home.catalog("schema = 1\n" + entry(write_bert(tmp_path / "scores.gguf", RANK), "rerank")
                 + entry(write_bert(tmp_path / "vectors.gguf", CLS), "embedding"))  # fmt: skip
    for name in ("scores", "vectors"):
        assert home.here("models", "pull", name, "--json").code == 0
    with home.up("scores") as up:
        assert engine(up)["state"] == "ready"  # its first request was one for a score
        assert up.status()["plan"]["n_ubatch"] == CONTEXT
    with home.up("vectors") as up:
        status, answer = up.raw("POST", "/v1/embeddings", {"model": "vectors", "input": ["the cat sits"] * 3})
        assert status == 200, answer
        assert len(answer["data"]) == 3
        status, answer = up.raw("POST", "/v1/embeddings", {"model": "vectors", "input": "the cat " * 400})
        assert status == 400, answer
        assert answer["error"]["code"] == "context_length_exceeded"


def entry(file: Path, use: str) -> str:
    return f"""
[models.{file.stem}]
family = "{file.stem}"
name = "Tiny"
license = "mit"
use = ["{use}"]
[[models.{file.stem}.variants]]
quant = "F32"
source = {{ kind = "file", path = "{file}" }}
files = [{{ name = "{file.name}", size = {file.stat().st_size}, sha256 = "{sha256(file)}" }}]
"""
