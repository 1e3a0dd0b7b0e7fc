"""The models of Ollama.

    <models>/manifests/<registry>/<namespace>/<name>/<tag>     JSON: the layers of a model
    <models>/blobs/sha256-<64 hex>                             a layer, named by its hash

A layer has a media type: `application/vnd.ollama.image.model` is the GGUF file, `.projector` its image
projector, `.draft` a draft model, `.adapter` a LoRA. Newer versions also write `manifests-v2` (links into the
blobs) and lists of manifests, one per runner. Where: `OLLAMA_MODELS`, else `~/.ollama/models`; the Linux
service has its own user, whose home is `/usr/share/ollama`. As in `envconfig/config.go` and in `manifest.go`,
`layer.go` and `paths.go` of the folder `manifest`, github.com/ollama/ollama.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from appliance.catalog import Role
from appliance.store.caches.types import Bounds, Candidate, Part, Scan
from appliance.store.caches.walk import Look
from appliance.text import clean_line

_SERVICE = Path("/usr/share/ollama/.ollama/models")
_FOLDERS = ("manifests-v2", "manifests")
_LAYER = "application/vnd.ollama.image."
_LIST = "application/vnd.ollama.manifest.list.v2+json"
_ROLES: dict[str, Role] = {"model": "model", "projector": "mmproj", "draft": "draft"}
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_HUBS = ("hf.co", "huggingface.co")
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_MAX_LAYERS = 4096
_MAX_LISTED = 16


def roots(env: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Where the models are: of this user and, on Linux, of the service."""
    chosen = env.get("OLLAMA_MODELS", "").strip().strip("\"'")
    return ((Path(chosen),) if chosen else ()) + (home / ".ollama" / "models", _SERVICE)


def scan(root: Path, bounds: Bounds) -> Scan:
    """The models in one folder. Reads manifests and first bytes only."""
    look = Look(root, bounds)
    found: dict[str, Candidate] = {}
    for names, path in _manifests(look):
        name = _name(names)
        if name not in found:
            candidate = _candidate(look, path, names)
            if candidate is not None:
                found[name] = candidate
    return Scan("ollama", root, tuple(found.values()), look.skipped)


def _manifests(look: Look) -> Iterator[tuple[tuple[str, ...], Path]]:
    """((registry, namespace, name, tag), path) of every manifest."""
    for top in _FOLDERS:
        for registry in look.folders(look.root / top):
            for namespace in look.folders(registry):
                for model in look.folders(namespace):
                    for entry in look.names(model):
                        path, names = (
                            Path(entry.path),
                            (registry.name, namespace.name, model.name, entry.name),
                        )
                        if not all(name.isprintable() for name in names):
                            look.skip(path, "its name has characters that can't be shown")
                        elif not entry.name.startswith("."):
                            yield names, path


def _name(names: tuple[str, ...]) -> str:
    """The name as Ollama shows it: without what is understood."""
    registry, namespace, model, tag = names
    where = "" if registry == "registry.ollama.ai" else f"{registry}/"
    owner = "" if namespace == "library" and not where else f"{namespace}/"
    return clean_line(f"{where}{owner}{model}:{tag}", 200)


def _candidate(look: Look, path: Path, names: tuple[str, ...]) -> Candidate | None:
    manifest = look.document(path)
    if manifest is not None and manifest.get("mediaType") == _LIST:
        manifest = _chosen(look, path, manifest)
    if manifest is None:
        return None
    layers = _layers(manifest)
    if layers is None:
        look.skip(path, "it is no manifest")
        return None
    why = _unfit(layers)
    if why is not None:
        look.skip(path, why)
        return None
    parts = [_part(look, path, kind, layer) for kind, layer in layers if kind in _ROLES]
    if any(part is None for part in parts):
        return None  # half a model is none; why was noted
    whole = sorted((part for part in parts if part is not None), key=lambda part: part.role != "model")
    repo = f"{names[1]}/{names[2]}" if names[0] in _HUBS else None
    repo = repo if repo and _REPO.fullmatch(repo) else None
    return Candidate("ollama", _name(names), tuple(whole), repo=repo)


def _unfit(layers: list[tuple[str, dict[str, Any]]]) -> str | None:
    kinds = [kind for kind, _ in layers]
    if kinds.count("model") != 1:
        return "it has no GGUF model" if "model" not in kinds else "it has more than one model file"
    if "adapter" in kinds:
        return "it needs an adapter (LoRA), which is not taken: without it, it would be another model"
    if kinds.count("projector") > 1 or kinds.count("draft") > 1:
        return "it has more than one projector or draft model"
    return None


def _layers(manifest: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]] | None:
    """(kind, layer); None when this is no manifest. A kind is the last word of the media type."""
    layers = manifest.get("layers")
    if not isinstance(layers, list) or len(layers) > _MAX_LAYERS:
        return None
    found: list[tuple[str, dict[str, Any]]] = []
    for layer in layers:
        media = layer.get("mediaType") if isinstance(layer, dict) else None
        if not isinstance(media, str):
            return None
        kind = media.partition(";")[0].strip().removeprefix(_LAYER)
        found.append((kind, layer))
    return found


def _part(look: Look, manifest: Path, kind: str, layer: Mapping[str, Any]) -> Part | None:
    blob, digest = _blob(look, layer.get("digest"))
    if blob is None:
        look.skip(manifest, "a layer's digest is no SHA-256")
        return None
    size, stated = look.size(blob, f"the blob of {manifest.name}"), layer.get("size")
    if size is None:
        return None
    if isinstance(stated, int) and stated != size:
        look.skip(manifest, f"its blob has {size} of {stated} bytes")
        return None
    return Part(_ROLES[kind], blob, size, blob.name, digest)


def _blob(look: Look, digest: object) -> tuple[Path | None, str]:
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if found is None:
        return None, ""
    return look.root / "blobs" / f"sha256-{found[1].lower()}", found[1].lower()


def _chosen(look: Look, path: Path, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of a list of manifests the one with GGUF layers; a child may stand there whole or by its digest."""
    children = manifest.get("manifests")
    for child in children[:_MAX_LISTED] if isinstance(children, list) else ():
        if not isinstance(child, dict) or child.get("runner") == "mlx":
            continue
        if "layers" not in child:
            blob, _ = _blob(look, child.get("digest"))
            child = look.document(blob) if blob is not None else None
        layers = _layers(child) if child else None
        if layers and any(kind == "model" for kind, _ in layers):
            return dict(child or {})
    look.skip(path, "none of its manifests has a GGUF model")
    return None
