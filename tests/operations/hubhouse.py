"""A user with a Hub of the test's own, and GGUF files small enough for it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from appliance import settings
from appliance.operations.models import Library
from appliance.paths import Paths
from tests.gguf import writer as w


def body(fill: int, *, arch: str = "llama", file_type: int = 15, n_bytes: int = 4096, **more: int) -> bytes:
    """A valid model file with one tensor whose data is `fill` repeated."""
    entries = [
        w.entry("general.architecture", w.STRING, arch),
        w.entry("general.name", w.STRING, "Inner Name"),
        w.entry("general.license", w.STRING, "mit"),
        w.entry("general.file_type", w.U32, file_type),
        w.entry(f"{arch}.context_length", w.U32, 2048),
        w.entry("tokenizer.chat_template", w.STRING, "{{ messages }}"),
        *(w.entry(f"{arch}.{key}", w.U32, value) for key, value in more.items()),
    ]
    head = w.gguf(entries, [w.tensor("token_embd.weight", (32, 8), 0, 0)])
    return head + bytes([fill]) * max(1024, n_bytes - len(head))


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def paths_under(root: Path) -> Paths:
    return Paths(root / "config", root / "data", root / "state", root / "cache", root / "run").make()


def library(paths: Paths) -> Library:
    return Library.open(paths, settings.load(paths.config_file))


def entry(model_id: str, repo: str, commit: str, name: str, raw: bytes, *, quant: str = "Q4_K_M") -> str:
    """A models.toml with one model of the Hub."""
    return f"""schema = 1

[models."{model_id}"]
family = "{model_id}"
name = "Listed"
use = ["chat"]
license = "apache-2.0"
[[models."{model_id}".variants]]
quant = "{quant}"
source = {{ kind = "hf", repo = "{repo}", revision = "{commit}" }}
files = [{{ name = "{name}", size = {len(raw)}, sha256 = "{sha256(raw)}" }}]
"""
