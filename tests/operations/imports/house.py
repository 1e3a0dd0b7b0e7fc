"""Models of other programs in a home folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

from appliance.operations.imports import Imported, Survey, candidates
from appliance.operations.models import Library
from appliance.paths import Paths
from tests.operations.hubhouse import library, sha256

COMMIT = "c" * 40


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
