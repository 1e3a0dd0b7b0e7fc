"""What the names of GGUF files say: parts of a set, projectors, and which of them belong together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from appliance import hub
from appliance.store.caches.types import Part
from appliance.store.caches.walk import Look

SUFFIX = ".gguf"
_MAX_PARTS = 512
_PROJECTOR_ORDER = ("f16", "bf16", "q8_0", "f32")
"""Which projector is taken where several lie beside a model: full quality in half the bytes first."""
_NO_MODEL = ("imatrix",)


@dataclass(frozen=True, slots=True)
class Split:
    """One part of a set, as llama.cpp names them (`gguf-split`)."""

    stem: str
    part: int
    total: int


def split_of(name: str) -> Split | None:
    """What the name says of a split set; None for a file of its own."""
    found = hub.part_of(name) if name.endswith(SUFFIX) else None
    return Split(*found) if found is not None and 1 <= found[1] <= found[2] <= _MAX_PARTS else None


def is_gguf(path: Path) -> bool:
    return path.name.casefold().endswith(SUFFIX) and not any(w in path.name.casefold() for w in _NO_MODEL)


Make = Callable[[Path, int], Part]
"""(path, size) -> a part with role "model" and no part number."""


def models_in(
    look: Look, files: Iterable[Path], make: Make
) -> list[tuple[tuple[Part, ...], tuple[Part, ...]]]:
    """The models among the files of ONE folder: (model or whole set and its projector, other projectors).

    What is no model or not whole is noted in `look`.
    """
    sets: dict[tuple[str, int], list[Path]] = {}
    singles, projectors = list[Path](), list[Path]()
    for path in sorted(files):
        if not is_gguf(path):
            continue
        split = split_of(path.name)
        if hub.is_projector(path.name):
            projectors.append(path)
        elif split is not None:
            sets.setdefault((split.stem, split.total), []).append(path)
        else:
            singles.append(path)
    whole = [parts for path in singles if (parts := _sized(look, [path], make))]
    whole += [
        parts for (stem, total), paths in sets.items() if (parts := _set(look, stem, total, paths, make))
    ]
    if not whole:
        return []
    beside = _projectors(look, projectors, make)
    return [((*parts, *beside[:1]), tuple(beside[1:])) for parts in whole]


def _sized(look: Look, paths: list[Path], make: Make) -> list[Part]:
    sizes = [look.size(path) for path in paths]
    return [make(path, size) for path, size in zip(paths, sizes, strict=True) if size is not None]


def _set(look: Look, stem: str, total: int, paths: list[Path], make: Make) -> list[Part]:
    by_number = {split.part: path for path in paths if (split := split_of(path.name))}
    missing = [n for n in range(1, total + 1) if n not in by_number]
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        look.skip(paths[0].parent / stem, f"of {total} parts these are missing: {shown}")
        return []
    found = _sized(look, [by_number[n] for n in range(1, total + 1)], make)
    if len(found) < total:
        return []  # why was noted
    return [
        Part(part.role, part.path, part.size, part.file, part.sha256, number)
        for number, part in enumerate(found, 1)
    ]


def _projectors(look: Look, paths: list[Path], make: Make) -> list[Part]:
    def rank(path: Path) -> tuple[int, str]:
        words = set(re.split(r"[^a-z0-9_]+", path.name.casefold()))
        known = [n for n, word in enumerate(_PROJECTOR_ORDER) if word in words]
        return (known[0] if known else len(_PROJECTOR_ORDER)), path.name

    found = _sized(look, sorted(paths, key=rank), make)
    return [Part("mmproj", part.path, part.size, part.file, part.sha256) for part in found]
