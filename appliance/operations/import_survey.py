"""What other programs have on this computer, and what an import of it would do. Nothing is verified here."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from appliance.catalog import File, HfSource, ModelRef
from appliance.errors import UsageError
from appliance.operations.models import Library
from appliance.store import Stored, caches, threads
from appliance.store.adopt import best_way
from appliance.store.caches import Bounds, Candidate, Origin, Part, Scan, Skipped
from appliance.store.taking import How
from appliance.text import clean_line

PROGRAMS: tuple[Origin, ...] = ("hf", "lmstudio", "ollama")
_HINT = "Name a .gguf file, a folder of them, or a model that `appliance models import` lists."


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate, and what an import of it would do."""

    candidate: Candidate
    state: Literal["here", "new"]
    """`here`: its bytes are in the store or referenced already."""
    how: How
    why: str | None
    """Why it would be no hard link."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What other programs have."""

    found: tuple[Found, ...]
    skipped: tuple[Skipped, ...]
    looked: tuple[tuple[Origin, Path], ...]
    """The folders that were there to look into."""


async def candidates(
    library: Library,
    origins: Collection[Origin] = PROGRAMS,
    *,
    env: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Survey:
    """Look at what the programs have. Verifies nothing, changes nothing."""
    where = os.environ if env is None else env
    bounds = Bounds(ours=library.paths.models)
    scans = await threads.run(None, caches.scan, where, home or Path.home(), origins, bounds)
    found = [candidate for scan in scans for candidate in scan.candidates]
    return Survey(
        await threads.run(None, _judged, library, found),
        tuple(skipped for scan in scans for skipped in scan.skipped),
        tuple((scan.origin, scan.root) for scan in scans),
    )


def models_of(ref: ModelRef) -> list[File]:
    """The model file, or the parts of its set."""
    return [pin for pin in ref.variant.files if pin.role == "model"]


async def named(library: Library, word: str, origins: Collection[Origin] = PROGRAMS) -> tuple[Candidate, ...]:
    """What a file, a folder or a name out of `candidates` means. Raises UsageError when it means nothing."""
    if not word.strip():
        raise UsageError("An empty name was given.", hint=_HINT)
    scan = await threads.run(None, _scan_path, Path(word), library)
    if scan is not None and scan.candidates:
        return scan.candidates
    if scan is None:
        survey = await candidates(library, origins)
        found = tuple(item.candidate for item in survey.found if item.candidate.name == word)
        if found:
            return found[:1]
        raise UsageError(f"There is no file or model {clean_line(word, 300)}.", hint=_HINT)
    raise _nothing(word, scan)


async def the_one(library: Library, path: Path) -> Candidate:
    """The model of a file, or the only one in a folder. Raises UsageError."""
    scan = await threads.run(None, _scan_path, path, library)
    if scan is None:
        raise UsageError(f"There is no file {clean_line(str(path), 300)}.", hint=_HINT)
    if not scan.candidates:
        raise _nothing(str(path), scan)
    if len(scan.candidates) > 1:
        names = ", ".join(candidate.name for candidate in scan.candidates[:5])
        raise UsageError(
            f"{clean_line(str(path), 300)} holds several models.", cause=names, hint="Name one of the files."
        )
    return scan.candidates[0]


def _nothing(word: str, scan: Scan) -> UsageError:
    reasons = "; ".join(f"{item.path}: {item.why}" for item in scan.skipped[:5])
    return UsageError(
        f"{clean_line(word, 300)} holds no model that can be imported.",
        cause=reasons or "There is no .gguf file in it.",
        hint=_HINT,
    )


def _scan_path(path: Path, library: Library) -> Scan | None:
    """None when nothing is there. Raises UsageError when that can't be told."""
    try:
        whole = path.expanduser()
        return caches.scan_path(whole, Bounds(ours=library.paths.models)) if whole.exists() else None
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"{clean_line(str(path), 300)} can't be looked at.", cause=clean_line(str(error), 200), hint=_HINT
        ) from None


def _judged(library: Library, found: Sequence[Candidate]) -> tuple[Found, ...]:
    refs, here = library.catalog.refs(), _here(library.store.list())
    rows = []
    for candidate in found:
        guess = _guess(refs, candidate)
        how, why = best_way(candidate.main.path, library.paths.models)
        known = [_known(here, part) for part in candidate.models]
        ref = known[0] if None not in known else None if guess is None else guess.ref
        marked = dataclasses.replace(candidate, catalog_ref=ref)
        rows.append(Found(marked, "new" if None in known else "here", how, why))
    return tuple(rows)


def _guess(refs: Sequence[ModelRef], candidate: Candidate) -> ModelRef | None:
    """What it seems to be: by stated hash and size; where none is stated, by repository, name and size."""
    models = candidate.models
    for ref in refs:
        pins, source = models_of(ref), ref.variant.source
        if [pin.size for pin in pins] != [part.size for part in models]:
            continue
        if all(part.sha256 is not None for part in models):
            if [pin.sha256 for pin in pins] == [part.sha256 for part in models]:
                return ref
            continue
        same_repo = (
            isinstance(source, HfSource) and source.repo.casefold() == (candidate.repo or "").casefold()
        )
        if same_repo and [pin.base_name for pin in pins] == [
            PurePosixPath(part.file).name for part in models
        ]:
            return ref
    return None


_Mark = tuple[object, ...]


def _here(stored: Iterable[Stored]) -> dict[_Mark, str]:
    """The ref of each file of the store, by what it is recognised by without reading: hash, or identity."""
    files = [(item.ref, file) for item in stored for file in item.files]
    return {("file", file.inode, file.device): ref for ref, file in files} | {
        ("sha256", file.sha256): ref for ref, file in files
    }


def _known(here: Mapping[_Mark, str], part: Part) -> str | None:
    marks: list[_Mark] = [("sha256", part.sha256)] if part.sha256 else []
    with contextlib.suppress(OSError):
        found = part.path.stat()
        marks.append(("file", found.st_ino, found.st_dev))
    return next((here[mark] for mark in marks if mark in here), None)
