"""What a look into another program's folder gives: models that may be taken, and what was passed over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.catalog import Role

Origin = Literal["hf", "lmstudio", "ollama", "path"]

ORIGIN_NAMES: dict[Origin, str] = {
    "hf": "Hugging Face cache",
    "lmstudio": "LM Studio",
    "ollama": "Ollama",
    "path": "this path",
}
"""How each is called to people."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file as it was found. Nothing of it is verified."""

    role: Role
    path: Path
    """Where the other program has it; may be a link into its own folder of blobs."""
    size: int
    """Bytes."""
    file: str
    """What its source calls it: the path inside a repository, or a file name."""
    sha256: str | None = None
    """What the other program says of it (the name of a blob); None = it says nothing."""
    part: int | None = None
    """Of a split set: 1, 2, ..."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that another program has. Nothing of it is verified."""

    origin: Origin
    name: str
    """For people, and where the other program has names: its own. Cleaned."""
    parts: tuple[Part, ...]
    """The model, or all parts of its set in order, then its projector or draft where it has one."""
    others: tuple[Part, ...] = ()
    """More projectors beside it, of other precision: one of them may be the one that the catalog pins."""
    repo: str | None = None
    """OWNER/REPO on the Hub, as the folders claim."""
    revision: str | None = None
    """40-hex commit."""
    catalog_ref: str | None = None
    """The `id:QUANT` that it seems to be, by stated hash and size, or by repository and file name."""

    @property
    def size(self) -> int:
        """Bytes of the parts."""
        return sum(part.size for part in self.parts)

    @property
    def main(self) -> Part:
        """The model file, or the first of its set."""
        return self.parts[0]

    @property
    def models(self) -> tuple[Part, ...]:
        """The model file, or all of its set."""
        return tuple(part for part in self.parts if part.role == "model")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that is no candidate, and why not."""

    path: str
    """Cleaned, for people."""
    why: str


@dataclass(frozen=True, slots=True)
class Scan:
    """What one folder gave."""

    origin: Origin
    root: Path
    candidates: tuple[Candidate, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one look may cost, and where it does not go. Tests use smaller numbers."""

    entries: int = 20_000
    """Names read in one folder tree."""
    depth: int = 6
    """Folders below the root."""
    document: int = 1 << 20
    """Bytes of a manifest or settings file."""
    skipped: int = 200
    """Reasons that are kept."""
    ours: Path | None = None
    """The store's own folder: what is in it is here already, or failed its check."""
