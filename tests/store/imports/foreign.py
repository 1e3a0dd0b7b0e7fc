"""Folders as other programs make them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from appliance.store import caches
from appliance.store.caches import Bounds, Origin, Scan
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
