"""Files and folders that the user names: what they are, and what the folders around them say."""

from __future__ import annotations

import os
import re
from pathlib import Path

from appliance import hub
from appliance.store.caches import huggingface, names
from appliance.store.caches.types import Bounds, Candidate, Part, Scan
from appliance.store.caches.walk import Look
from appliance.text import clean_line

_BLOB = re.compile(r"sha256-([0-9a-f]{64})")
_DEPTH = 3


def of_file(path: Path, bounds: Bounds) -> Scan:
    """The model of one file: with all parts of its set, and the projector beside it.

    No candidates and one reason, when it is none. Any file name will do.
    """
    whole = path.parent.resolve() / path.name  # `..` and links of folders resolved, its own name kept
    look = Look(Path(whole.anchor), bounds)
    wanted = names.split_of(whole.name)
    siblings = [Path(entry.path) for entry in look.names(whole.parent)] if names.is_gguf(whole) else []
    if not names.is_gguf(whole) or hub.is_projector(whole.name):
        size = look.size(whole)
        parts = () if size is None else (_make(whole, size),)
        return Scan("path", whole, _candidates([(parts, ())] if parts else []), look.skipped)
    ours = [
        p
        for p in siblings
        if p.name == whole.name
        or hub.is_projector(p.name)
        or (wanted and (s := names.split_of(p.name)) and (s.stem, s.total) == (wanted.stem, wanted.total))
    ]
    return Scan("path", whole, _candidates(names.models_in(look, ours, _make)), look.skipped)


def of_folder(path: Path, bounds: Bounds) -> Scan:
    """All models in a folder, a few folders deep."""
    root = path.resolve()
    look = Look(Path(root.anchor), bounds)  # what the user's own links lead to is meant, too
    found: list[tuple[tuple[Part, ...], tuple[Part, ...]]] = []
    for _, files in look.tree(root, _DEPTH, hidden=False):
        found += names.models_in(look, files, _make)
    return Scan("path", root, _candidates(found), look.skipped)


def _candidates(found: list[tuple[tuple[Part, ...], tuple[Part, ...]]]) -> tuple[Candidate, ...]:
    made = []
    for parts, others in found:
        repo, revision, _ = _place(parts[0].path)
        made.append(Candidate("path", clean_line(parts[0].path.name, 200), parts, others, repo, revision))
    return tuple(made)


def _make(path: Path, size: int) -> Part:
    blob = _BLOB.fullmatch(path.name)
    stated = blob[1] if blob else huggingface.stated_sha256(path)
    return Part("model", path, size, _place(path)[2], stated)


def _place(path: Path) -> tuple[str | None, str | None, str]:
    """(repository, commit, path inside it) of a file in a Hugging Face cache; else only the name."""
    parts = path.parts
    for n in range(len(parts) - 4, 0, -1):
        repo = huggingface.repo_of(parts[n])
        if repo and parts[n + 1] == "snapshots" and huggingface.COMMIT.fullmatch(parts[n + 2]):
            return repo, parts[n + 2], "/".join(parts[n + 3 :])
    return None, None, os.path.basename(path)
