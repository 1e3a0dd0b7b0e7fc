"""Where things lie under the model folder.

    <models>/<id>/<QUANT>-<digest>/<file>            a verified file, under the last part of its name
                                  /<file>.part       what has arrived of it
                                  /<file>.part.json  where that came from
                                  /<file>.part.log   which chunks of it are here, and their digests
                                  /<file>.chunks     beside a verified file: the digest of each of its chunks
                                  /record.json       written last: all files are here and verified
                                  /.used             its time is that of the last load
    <models>/.quarantine/...                         files that failed their check, each with a .json
    <models>/.locks/<id>~<QUANT>.json                who is at work on a variant

`digest` is made of the pins, so files of another pin never share a folder. The parts of a split set keep
their names, since engines find the second part by the name of the first.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.catalog import File, ModelRef

RECORD = "record.json"
PART = ".part"
STATE = ".part.json"
LOG = ".part.log"
CHUNKS = ".chunks"
SCRATCH = ".wheel"
USED = ".used"
NOTE = ".json"
"""Ending of the note beside a quarantined file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one model folder."""

    root: Path

    @property
    def quarantine(self) -> Path:
        return self.root / ".quarantine"

    @property
    def locks(self) -> Path:
        return self.root / ".locks"

    def folder(self, ref: ModelRef) -> Path:
        """The folder of one variant at its present pins."""
        pins = "".join(f"{file.base_name} {file.size} {file.sha256}\n" for file in ref.variant.files)
        digest = hashlib.sha256(pins.encode()).hexdigest()[:12]
        return self.root / ref.id / f"{ref.quant}-{digest}"

    def lock(self, ref: str) -> Path:
        return self.locks / f"{ref.replace(':', '~')}.json"

    def folders(self) -> tuple[Path, ...]:
        """Every variant folder that exists."""
        return tuple(sorted(p for p in self.root.glob("[!.]*/*") if p.is_dir()))


def quant_of(folder: Path) -> str:
    """The quant of a variant folder's name."""
    return folder.name.rpartition("-")[0]


def final(folder: Path, file: File) -> Path:
    return folder / file.base_name


def part(folder: Path, file: File) -> Path:
    return folder / (file.base_name + PART)


def state(folder: Path, file: File) -> Path:
    return folder / (file.base_name + STATE)


def log(folder: Path, file: File) -> Path:
    return folder / (file.base_name + LOG)


def chunks(folder: Path, file: File) -> Path:
    return folder / (file.base_name + CHUNKS)


def write_json(path: Path, document: Any, *, durable: bool = True) -> None:
    """Replace a small document as a whole: a reader sees the old or the new one, also after a power cut.

    Without `durable` a power cut may lose it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """The document, or None when it is absent or broken."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # Windows can't open folders
    try:
        os.fsync(handle)
    except OSError:
        pass  # some network file systems refuse; the rename itself was atomic
    finally:
        os.close(handle)
