"""The cache of huggingface_hub, which transformers, llama.cpp (`-hf`) and many others share.

    <cache>/models--OWNER--REPO/refs/main                     the commit that a branch meant last
                               /blobs/<sha256 or git sha1>    the bytes, named by the ETag of the Hub
                               /snapshots/<commit>/<path>     a link to ../../blobs/..., or the file itself
                                                              where links can't be made (Windows)

The name of a blob is what the server announced, not a hash of what arrived (nobody computed one), so it is
only what the cache *says*. Layout: "Understand caching" in the documentation of huggingface_hub; names and
variables as in its `constants.py` and `file_download.py` (2.4).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from appliance.store.caches import names
from appliance.store.caches.types import Bounds, Candidate, Part, Scan
from appliance.store.caches.walk import Look, opened
from appliance.text import clean_line

COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REPO = re.compile(r"models--([A-Za-z0-9][A-Za-z0-9._-]*?)--([A-Za-z0-9][A-Za-z0-9._-]*)")
_PREFIX = "models--"


def roots(env: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Where the cache is: `HF_HUB_CACHE` (or its older name), else below `HF_HOME` or the user's cache."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if env.get(variable):
            return (_expanded(env[variable], home),)
    if env.get("HF_HOME"):
        return (_expanded(env["HF_HOME"], home) / "hub",)
    cache = _expanded(env["XDG_CACHE_HOME"], home) if env.get("XDG_CACHE_HOME") else home / ".cache"
    return (cache / "huggingface" / "hub",)


def scan(root: Path, bounds: Bounds) -> Scan:
    """The models in one cache. Reads names, links and first bytes only."""
    look = Look(root, bounds)
    found: list[Candidate] = []
    for folder in look.folders(root):
        if folder.name.startswith(_PREFIX):
            found += _repository(look, folder)
    return Scan("hf", root, tuple(found), look.skipped)


def repo_of(folder_name: str) -> str | None:
    """OWNER/REPO of a folder of the cache; None for the few repositories without an owner."""
    found = _REPO.fullmatch(folder_name)
    return f"{found[1]}/{found[2]}" if found else None


def stated_sha256(path: Path) -> str | None:
    """The SHA-256 that the cache states of a snapshot's file: the name of its blob, where that is one."""
    blob = Path(os.path.realpath(path))
    return blob.name if blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name) else None


def _repository(look: Look, folder: Path) -> list[Candidate]:
    repo, seen, found = repo_of(folder.name), set[str](), list[Candidate]()
    for snapshot in _newest_first(folder, look.folders(folder / "snapshots")):
        if not COMMIT.fullmatch(snapshot.name):
            look.skip(snapshot, "its name is no commit")
            continue

        def make(path: Path, size: int, snapshot: Path = snapshot) -> Part:
            return Part("model", path, size, path.relative_to(snapshot).as_posix(), stated_sha256(path))

        for _, files in look.tree(snapshot):
            for parts, others in names.models_in(look, files, make):
                bytes_at = os.path.realpath(parts[0].path)
                if bytes_at in seen:
                    continue  # the same bytes at another commit
                seen.add(bytes_at)
                name = clean_line(f"{repo or folder.name.removeprefix(_PREFIX)} {parts[0].file}", 200)
                found.append(Candidate("hf", name, parts, others, repo, snapshot.name))
    return found


def _newest_first(folder: Path, snapshots: list[Path]) -> list[Path]:
    """The commit of `main` first, then by age: where several share bytes, the first one names them."""
    main = _main(folder)

    def rank(snapshot: Path) -> tuple[bool, float]:
        try:
            return snapshot.name != main, -snapshot.stat().st_mtime
        except OSError:
            return True, 0.0

    return sorted(snapshots, key=rank)


def _main(folder: Path) -> str | None:
    try:
        with opened(folder / "refs" / "main") as data:
            return data.read(64).decode("ascii", errors="replace").strip()
    except OSError:
        return None


def _expanded(text: str, home: Path) -> Path:
    """`~` is `home`; variables are those of the process, as the library has it."""
    text = os.path.expandvars(text)
    return home / text[2:] if text.startswith(("~/", "~\\")) else Path(text)
