"""What in a variant's folder is ours to remove, and as what. Only looks.

By their names alone: the partial file with its log, digests, wheels, what was half written, and a finished
file that has its digests beside it. Whatever else lies there is the user's and stays.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from appliance.store import layout, marker, records, regular, removal
from appliance.store.layout import Layout
from appliance.store.types import LeftoverKind, Stored

NOTES = (layout.LOG, layout.STATE, layout.CHUNKS, layout.DAMAGED)
"""Small files that say nothing to people when what they are about is gone."""
_PART_ENDS = (layout.LOG, layout.STATE, layout.PART)
"""What belongs to one partial file, the longest ending first."""
_TEMPORARY_S = 3_600.0
"""A half-written small document of this age has lost its writer; it is written within milliseconds."""
_TEMPORARY = re.compile(
    r"\.((record\.json|\.damaged|.+\.chunks|.+\.part|.+\.part\.log|.+\.part\.json)\.\w{8}|import-[0-9a-f]{8}-.+)"
)
_OURS = (layout.RECORD, layout.USED, layout.DAMAGED)


@dataclass(frozen=True, slots=True)
class Item:
    """Names that go together."""

    kind: LeftoverKind
    path: Path
    """The one that people know it by."""
    names: tuple[Path, ...]
    about: str


def partials(folder: Path) -> list[Item]:
    """What unfinished work has left in a variant's folder; of one that was whole and is damaged, one item."""
    ref, marked = layout.ref_of(folder), _damage_of(folder)
    whole = is_recorded(folder) and (marked is None or records.read(folder) is None)
    families: dict[str, list[Path]] = {}
    loose: list[Item] = []
    for path in _names(folder):
        base = _part_of(path)
        if base is not None:
            families.setdefault(base, []).append(path)
        elif _is_scratch(path):
            loose += _wheels(path, ref)
        elif (why := _left_behind(path, whole)) is not None:
            digests = path.with_name(path.name + layout.CHUNKS)
            loose.append(Item("partial", path, (path, digests), f"{ref}, {why}"))
    parts = [_family(folder / (base + layout.PART), found, ref) for base, found in families.items()]
    if marked is None or not parts + loose:
        return parts + loose
    return [_damaged(folder, () if whole else (folder / layout.RECORD,), parts + loose)]


def foreign(folder: Path) -> list[Path]:
    """What is not ours in a variant's folder: it is never removed without its model."""
    stored = records.read(folder)
    known = _OURS if stored is None else (*_OURS, *(file.name for file in stored.files))
    return [path for path in _names(folder) if path.name not in known and not _is_ours(path, known)]


def unused(folder: Path, unused_s: float) -> Item | None:
    """The whole variant when its last load, or its arrival, is that long ago. References free nothing."""
    stored = records.read(folder)
    if stored is None or any(file.referenced for file in stored.files):
        return None
    used = last_used(folder)
    since = max(stored.verified_at, used or 0.0)
    if not time.time() - since >= unused_s:
        return None
    days = int((time.time() - since) // 86_400)
    about = f"{stored.ref}, " + (f"last loaded {days} days ago" if used else f"never loaded in {days} days")
    return Item("unused", folder, _whole(folder, stored), about)


def last_used(folder: Path) -> float | None:
    """When a model was loaded last, in seconds since the epoch; None = never."""
    try:
        return (folder / layout.USED).stat().st_mtime
    except OSError:
        return None


def quarantined(where: Layout) -> list[Item]:
    """What failed its check."""
    found = []
    try:
        names = sorted(where.quarantine.iterdir())
    except OSError:
        return []
    for path in names:
        note = path.with_name(path.name + layout.NOTE)
        if path.name.endswith(layout.NOTE):
            if not os.path.lexists(path.with_name(path.name.removesuffix(layout.NOTE))):
                found.append(Item("quarantined", path, (path,), "a note whose file is gone"))
            continue
        told = layout.read_json(note) or {}
        about = f"{told.get('ref', 'unknown model')}: {told.get('why', 'unknown reason')}"
        inside = removal.tree(path)
        found.append(Item("quarantined", path, (*(n for n in inside if n != path), path, note), about))
    return found


def marked_only(where: Layout) -> list[Item]:
    """Folders of which nothing but the marker is left: all of their model is in quarantine."""
    aside = quarantined_refs(where)
    return [
        Item("empty", folder, (*_names(folder), folder), "its files are in quarantine")
        for folder in where.folders()
        if layout.ref_of(folder) in aside
        and marker.is_marked(folder)
        and {path.name for path in _names(folder)} <= {layout.DAMAGED, layout.USED}
    ]


def quarantined_refs(where: Layout) -> frozenset[str]:
    """The refs whose files are in quarantine."""
    notes = (layout.read_json(path) for path in where.quarantine.glob(f"*{layout.NOTE}"))
    return frozenset(str(note["ref"]) for note in notes if note is not None and "ref" in note)


def is_bare(folder: Path) -> bool:
    """No file in it but the mark of the last load. False where that can't be told."""
    try:
        return all(name == layout.USED for _, _, names in os.walk(folder, onerror=_raise) for name in names)
    except OSError:
        return False


def _raise(error: OSError) -> None:
    raise error


def _names(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _whole(folder: Path, stored: Stored) -> tuple[Path, ...]:
    """The record first: half a model must not look whole. The folder only where nothing else is in it."""
    record = folder / layout.RECORD
    others, strange = removal.tree(folder), foreign(folder)
    ours = [path for path in others if path != record and not any(_is_in(path, other) for other in strange)]
    return (record, *ours, *(() if strange else (folder,)))


def _is_in(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _is_ours(path: Path, known: Iterable[str]) -> bool:
    if _part_of(path) is not None or _is_scratch(path) or _TEMPORARY.fullmatch(path.name):
        return True
    if path.name.endswith(layout.CHUNKS):
        return regular.kind_of(path) is None
    return _is_finished(path)


def _is_finished(path: Path) -> bool:
    """A file that we gave its name: its digests are beside it."""
    digests = path.with_name(path.name + layout.CHUNKS)
    return regular.kind_of(digests) is None and os.path.lexists(digests) and not _is_real_folder(path)


def _is_real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_scratch(path: Path) -> bool:
    return path.name == layout.SCRATCH and _is_real_folder(path)


def _left_behind(path: Path, whole: bool) -> str | None:
    """Why a file that is neither partial nor a wheel may go; None = it may not."""
    if _is_real_folder(path) or path.name in _OURS:
        return None
    if _TEMPORARY.fullmatch(path.name):
        return "left by work that was killed" if _is_old(path) else None
    if path.name.endswith(layout.CHUNKS):
        file = path.with_name(path.name.removesuffix(layout.CHUNKS))
        return None if whole or os.path.lexists(file) else "digests without their file"
    return "one file of a model that is not whole" if not whole and _is_finished(path) else None


def _damage_of(folder: Path) -> marker.Marked | None:
    """What is wrong with a model of which more is left than a record and what it speaks of."""
    if marker.is_marked(folder) or any(_part_of(path) is not None for path in _names(folder)):
        return marker.seen(folder)
    return None


def is_recorded(folder: Path) -> bool:
    """Whether a record is there, also a broken one. True where that can't be told: nothing goes then."""
    try:
        return (folder / layout.RECORD).exists()
    except OSError:
        return True


def _damaged(folder: Path, record: tuple[Path, ...], items: list[Item]) -> Item:
    """All of it goes together, and not without a question: most of its bytes are good."""
    names = (*record, *(name for item in items for name in item.names))
    path = items[0].path if items else folder / layout.DAMAGED
    about = f"{layout.ref_of(folder)}, damaged; a repair fetches only what differs"
    return Item("damaged", path, (*names, folder / layout.DAMAGED), about)


def _wheels(scratch: Path, ref: str) -> list[Item]:
    """One item for each file; the folder goes with the last."""
    names = removal.tree(scratch)
    groups = [(name,) for name in names[:-1]] + [(name, scratch) for name in names[-1:]]
    return [Item("partial", group[0], group, f"{ref}, as a wheel") for group in groups]


def _family(part: Path, names: list[Path], ref: str) -> Item:
    return Item("partial", part if part in names else names[0], tuple(names), ref)


def _part_of(path: Path) -> str | None:
    """The file that `path` is the partial, log or note of; a folder is none of these."""
    for end in _PART_ENDS:
        if path.name.endswith(end) and path.name != end and not path.name.startswith("."):
            return None if _is_real_folder(path) else path.name.removesuffix(end)
    return None


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > _TEMPORARY_S
    except OSError:
        return False
