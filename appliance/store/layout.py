"""Where things lie under the model folder.

    <models>/<id>/<QUANT>-<digest>/<file>            a verified file, under the last part of its name
                                  /<file>.part       what has arrived of it
                                  /<file>.part.json  where that came from
                                  /<file>.part.log   which chunks of it are here, and their digests
                                  /<file>.chunks     beside a verified file: the digest of each of its chunks
                                  /record.json       written last: all files are here and verified
                                  /.used             its time is that of the last load
                                  /.damaged          what a check found wrong, until it is mended
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
from appliance.errors import ApplianceError
from appliance.store import regular

RECORD = "record.json"
PART = ".part"
STATE = ".part.json"
LOG = ".part.log"
CHUNKS = ".chunks"
SCRATCH = ".wheel"
USED = ".used"
DAMAGED = ".damaged"
NOTE = ".json"
"""Ending of the note beside a quarantined file."""
_DOCUMENT = 64 << 20
"""Bytes of a small document that are read at all; digests of the chunks of 10 TB come to half of it."""


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
        """Every variant folder that exists. Raises ApplianceError when the model folder can't be read."""
        return tuple(sorted(found for top in self.tops() for found in _below(top) or ()))

    def folders_of(self, ref: str) -> tuple[Path, ...]:
        """Those of `id:QUANT`, one for each set of pins that was here."""
        return tuple(folder for folder in self.folders() if ref_of(folder) == ref)

    def tops(self) -> tuple[Path, ...]:
        """The folder of each id. Raises ApplianceError when the model folder can't be read."""
        try:
            return tuple(sorted(path for path in _folders_in(self.root) if not path.name.startswith(".")))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ApplianceError(
                f"The model folder {self.root} can't be read.",
                cause=error.strerror or str(error),
                hint="Give this user the right to read it, or set APPLIANCE_HOME to another folder.",
            ) from None

    def closed(self) -> tuple[Path, ...]:
        """The folders of ids that can't be looked into."""
        return tuple(top for top in self.tops() if _below(top) is None)


def _folders_in(folder: Path) -> list[Path]:
    """Raises OSError."""
    with os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if _is_folder(entry)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to where this user may not look


def _below(top: Path) -> list[Path] | None:
    """None: this user may not look there, or the disk refuses; the others are not to be missed for it."""
    try:
        return _folders_in(top)
    except FileNotFoundError:
        return []
    except OSError:
        return None


def quant_of(folder: Path) -> str:
    """The quant of a variant folder's name."""
    return folder.name.rpartition("-")[0]


def ref_of(folder: Path) -> str:
    """`id:QUANT` of a variant folder."""
    return f"{folder.parent.name}:{quant_of(folder)}"


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
    """The document, or None when it is absent, broken, nested without end or no regular file."""
    try:
        with regular.reader(path, follow=True) as file:
            data = file.read(_DOCUMENT + 1)
        found = None if data is None or len(data) > _DOCUMENT else json.loads(data.decode("utf-8"))
    except (OSError, ValueError, RecursionError):
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
