"""File names of a repository -> quantisations, split sets and projectors. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

_LABEL = re.compile(
    r"(?:^|[-._ ])("
    r"(?:UD[-_])?(?:IQ[1-9]|TQ[1-9]|Q[1-9])(?:_(?:[0-9KSMLPXN]{1,3}|XXS|NL|MOE))*"
    r"|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4"
    r")(?=[-._ ]|$)",
    re.IGNORECASE,
)
_SUFFIX = ".gguf"
_PART = re.compile(r"^(.*)-(\d{5})-of-(\d{5})$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file as the Hub states it at one commit."""

    path: str
    size: int | None
    """Bytes; None = not stated."""
    sha256: str | None
    """None = not stated, so it can't be pinned."""

    @property
    def pinnable(self) -> bool:
        return self.size is not None and self.sha256 is not None


@dataclass(frozen=True, slots=True)
class Quant:
    """One quantisation: a file, or all parts of a split set in order."""

    label: str | None
    """`Q4_K_M`; None when neither file nor folder tells it."""
    files: tuple[RepoFile, ...]
    n_parts: int | None = None
    """How many parts the names promise; None = not split."""

    @property
    def size(self) -> int | None:
        """Bytes of all files; None when one is not stated."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def complete(self) -> bool:
        """False when parts of the set are not there."""
        return self.n_parts is None or len(self.files) == self.n_parts

    @property
    def pinnable(self) -> bool:
        """Whole, with a size and a hash for each file."""
        return self.complete and all(file.pinnable for file in self.files)


def part_of(path: str) -> tuple[str, int, int] | None:
    """`(stem, part, parts)` of a file of a split set, else None."""
    found = _PART.match(_bare(path))
    return (found[1], int(found[2]), int(found[3])) if found else None


def label_of(path: str) -> str | None:
    """The quantisation that a file's name tells, else that of its folder: `UD-Q4_K_XL`, `Q8_0`, `F16`."""
    part = part_of(path)
    whole = PurePosixPath(part[0] if part else _bare(path))
    for name in (whole.name, *(reversed(whole.parts[:-1]))):
        found = _LABEL.findall(name)
        if found:
            return _canonical(found[-1])
    return None


def stem_of(path: str) -> str:
    """The file's name without its quantisation, part number and ending: what the model is called."""
    part = part_of(path)
    name = PurePosixPath(part[0] if part else _bare(path)).name
    found = list(_LABEL.finditer(name))
    if found:
        name = name[: found[-1].start()] + name[found[-1].end() :]
    return name.strip("-._ ")


def _bare(path: str) -> str:
    return path[: -len(_SUFFIX)] if is_gguf(path) else path


def is_projector(path: str) -> bool:
    """Whether it is the part that turns pictures into tokens."""
    return "mmproj" in PurePosixPath(path).name.lower()


def is_gguf(path: str) -> bool:
    return path.lower().endswith(_SUFFIX)


def grouped(files: Iterable[RepoFile]) -> tuple[tuple[Quant, ...], tuple[RepoFile, ...]]:
    """`(quantisations by size, projectors)` of the GGUF files among `files`; calibration data is left out."""
    single: list[Quant] = []
    sets: dict[tuple[str, int], dict[int, RepoFile]] = {}
    projectors: list[RepoFile] = []
    for file in files:
        name = PurePosixPath(file.path).name.lower()
        if not is_gguf(file.path) or "imatrix" in name.removesuffix(".gguf").split("-")[-1]:
            continue
        if is_projector(file.path):
            projectors.append(file)
        elif (part := part_of(file.path)) is not None:
            sets.setdefault((part[0], part[2]), {})[part[1]] = file
        else:
            single.append(Quant(label_of(file.path), (file,)))
    for (_, n_parts), parts in sets.items():
        ordered = tuple(parts[n] for n in sorted(parts) if 1 <= n <= n_parts)
        if ordered:
            single.append(Quant(label_of(ordered[0].path), ordered, n_parts))
    single.sort(key=lambda quant: (quant.size is None, quant.size or 0, quant.files[0].path))
    return tuple(single), tuple(sorted(projectors, key=lambda file: file.path))


def _canonical(label: str) -> str:
    upper = label.upper().replace("UD_", "UD-")
    return {"FP16": "F16", "FP32": "F32"}.get(upper, upper)
