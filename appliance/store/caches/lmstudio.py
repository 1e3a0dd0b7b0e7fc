"""The models of LM Studio.

    <models>/OWNER/REPO/FILE.gguf          and a `mmproj-*.gguf` beside it

`<models>` is `downloadsFolder` in the `settings.json` of its home, else `models` below the home. The home is
what `~/.lmstudio-home-pointer` names, else `~/.cache/lm-studio` (older) or `~/.lmstudio`. Folders as
documented under "Import models" at lmstudio.ai/docs; home and setting as in `findLMStudioHome` and
`modelsFolder.ts` of its own command line (github.com/lmstudio-ai/lms). It records no hash: what a folder is
called is only a claim.
"""

from __future__ import annotations

import re
from pathlib import Path

from appliance.store.caches import names
from appliance.store.caches.types import Bounds, Candidate, Part, Scan
from appliance.store.caches.walk import Look, opened, parsed
from appliance.text import clean_line

_POINTER = ".lmstudio-home-pointer"
_POINTER_BYTES = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def roots(home: Path, bounds: Bounds) -> tuple[Path, ...]:
    """Every models folder that LM Studio of any age may use; most are not there."""
    found: list[Path] = []
    for base in (_pointed(home), home / ".lmstudio", home / ".cache" / "lm-studio"):
        if base is not None:
            chosen = _downloads(base / "settings.json", bounds)
            found += [chosen] if chosen is not None else []
            found.append(base / "models")
    return tuple(found)


def scan(root: Path, bounds: Bounds) -> Scan:
    """The models in one models folder. Reads names and first bytes only."""
    look = Look(root, bounds)
    found: list[Candidate] = []

    def make(path: Path, size: int) -> Part:
        return Part("model", path, size, path.name)

    for folder, files in look.tree(root):
        repo = _repo(folder.relative_to(root).parts)
        for parts, others in names.models_in(look, files, make):
            where = folder.relative_to(root).as_posix()
            name = clean_line(parts[0].path.name if where == "." else f"{where} {parts[0].path.name}", 200)
            found.append(Candidate("lmstudio", name, parts, others, repo))
    return Scan("lmstudio", root, tuple(found), look.skipped)


def _repo(below: tuple[str, ...]) -> str | None:
    """OWNER/REPO as the two folders claim."""
    if len(below) < 2 or not all(_NAME.fullmatch(name) for name in below[:2]):
        return None
    return f"{below[0]}/{below[1]}"


def _pointed(home: Path) -> Path | None:
    try:
        with opened(home / _POINTER) as data:
            text = data.read(_POINTER_BYTES).decode("utf-8", errors="surrogateescape").strip()
    except OSError:
        return None
    return Path(text) if "\0" not in text and "\n" not in text and Path(text).is_absolute() else None


def _downloads(settings: Path, bounds: Bounds) -> Path | None:
    try:
        with opened(settings) as data:
            raw = data.read(bounds.document + 1)
    except OSError:
        return None
    chosen = (parsed(raw) or {}).get("downloadsFolder") if len(raw) <= bounds.document else None
    if not isinstance(chosen, str) or "\0" in chosen or not Path(chosen).is_absolute():
        return None
    return Path(chosen)
