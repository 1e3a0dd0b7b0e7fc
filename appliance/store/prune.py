"""What can go: partials, quarantined files, models unused for long, and what dead processes left behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.store import layout, records, removal
from appliance.store.layout import Layout
from appliance.store.lock import Lock, drop_stale, stale
from appliance.store.types import Leftover, LeftoverKind, Pruned

_TEMPORARY_S = 3_600.0
"""A half-written small document of this age has lost its writer; it is written within milliseconds."""
_PART_ENDS = (layout.LOG, layout.STATE, layout.PART)
"""What belongs to one partial file, the longest ending first."""
NOTES = (layout.LOG, layout.STATE, layout.CHUNKS)
"""Small files that say nothing to people when what they are about is gone."""


@dataclass(frozen=True, slots=True)
class _Item:
    """Names that go together."""

    kind: LeftoverKind
    path: Path
    """The one that people know it by."""
    names: tuple[Path, ...]
    about: str


def prune(
    where: Layout,
    *,
    partials: bool,
    quarantine: bool,
    unused_s: float | None,
    dry_run: bool,
    keep: frozenset[str],
) -> tuple[Pruned, ...]:
    """Remove what was asked for, stale locks and empty folders; with `dry_run` only say what would go.

    A variant that is being fetched stays as it is, in `keep` are the refs that are in use. `size` of the
    result is what comes free: it adds up to the real figure. Raises ApplianceError when the system refuses.
    """
    tally, gone = removal.Tally(), list[Pruned]()

    def take(items: Iterable[_Item]) -> None:
        for item in items:
            size = sum(tally.freed(name) for name in item.names)
            if not dry_run:
                for name in item.names:
                    removal.delete(name)
            gone.append(Pruned(item.kind, item.path, size, item.about))

    for path in _stale_locks(where):
        size = tally.freed(path)
        if dry_run or _dropped(path):
            gone.append(Pruned("lock", path, size, f"of {path.stem.replace('~', ':')}, its process is gone"))
    take(_Item("empty", path, (path,), "nothing is in it") for path in _empty(where))
    for folder in where.folders():
        ref = ref_of(folder)
        with _held(where, ref, dry_run) as ours:
            if not ours:
                continue
            unused = _unused(folder, unused_s) if unused_s is not None and ref not in keep else None
            take([unused] if unused else _partials(folder) if partials else [])
            if not dry_run and (not folder.exists() or _is_bare(folder)):
                removal.delete(folder)
                removal.drop_empty(folder.parent)
    if quarantine:
        take(_quarantined(where))
    return tuple(gone)


def leftovers(where: Layout) -> tuple[Leftover, ...]:
    """Every unfinished and every quarantined file, those of a transfer that is running now, too."""
    items = [item for folder in where.folders() for item in _partials(folder)]
    shown = [item for item in items if not item.path.name.endswith(NOTES)]
    found = [_leftover(item) for item in [*shown, *_quarantined(where)]]
    return tuple(item for item in found if item is not None)


def quarantined_refs(where: Layout) -> frozenset[str]:
    """The refs whose files are in quarantine."""
    notes = (layout.read_json(path) for path in where.quarantine.glob(f"*{layout.NOTE}"))
    return frozenset(str(note["ref"]) for note in notes if note is not None and "ref" in note)


def ref_of(folder: Path) -> str:
    """`id:QUANT` of a variant folder."""
    return f"{folder.parent.name}:{layout.quant_of(folder)}"


def last_used(folder: Path) -> float | None:
    """When a model was loaded last, in seconds since the epoch; None = never."""
    try:
        return (folder / layout.USED).stat().st_mtime
    except OSError:
        return None


def _leftover(item: _Item) -> Leftover | None:
    try:
        stat = item.path.stat()
        tally = removal.Tally()
        on_disk = sum(tally.freed(name) for name in item.names)
    except OSError:
        return None  # it went away while we looked
    kind: Literal["partial", "quarantined"] = "quarantined" if item.kind == "quarantined" else "partial"
    return Leftover(kind, item.path, stat.st_size, item.about, stat.st_mtime, on_disk)


@contextlib.contextmanager
def _held(where: Layout, ref: str, dry_run: bool) -> Iterator[bool]:
    """The lock of a variant; False while somebody else has it. A dry run only looks."""
    lock = Lock(where.lock(ref))
    if dry_run:
        yield lock.owner() is None
        return
    try:
        holder = lock.acquire()
    except OSError as error:
        raise removal.refused(where.root, error) from None
    try:
        yield holder is None
    finally:
        lock.release()


def _dropped(path: Path) -> bool:
    try:
        return drop_stale(path)
    except OSError as error:
        raise removal.refused(path, error) from None


def _stale_locks(where: Layout) -> list[Path]:
    return [path for path in sorted(where.locks.glob("*.json")) if stale(path)]


def _empty(where: Layout) -> list[Path]:
    """Folders that hold no file at all, the upper one only when both are empty."""
    found = [top for top in sorted(where.root.glob("[!.]*")) if top.is_dir() and _is_bare(top)]
    return found + [f for f in where.folders() if f.parent not in found and _is_bare(f)]


def _is_bare(folder: Path) -> bool:
    """No file in it but the mark of the last load."""
    return all(path.name == layout.USED for path in removal.tree(folder))


def _unused(folder: Path, unused_s: float) -> _Item | None:
    """The whole variant when its last load, or its arrival, is that long ago. References free nothing."""
    stored = records.read(folder)
    if stored is None or any(file.referenced for file in stored.files):
        return None
    used = last_used(folder)
    since = max(stored.verified_at, used or 0.0)
    if time.time() - since < unused_s:
        return None
    days = int((time.time() - since) // 86_400)
    about = f"{stored.ref}, " + (f"last loaded {days} days ago" if used else f"never loaded in {days} days")
    return _Item("unused", folder, (folder / layout.RECORD, *_others(folder), folder), about)


def _others(folder: Path) -> list[Path]:
    """All but the record, which has to go first."""
    return [path for path in removal.tree(folder) if path != folder / layout.RECORD]


def _partials(folder: Path) -> list[_Item]:
    """What unfinished work has left in a variant's folder; nothing of a variant that is whole."""
    ref, whole = ref_of(folder), (folder / layout.RECORD).exists()
    families: dict[str, list[Path]] = {}
    loose: list[_Item] = []
    try:
        names = sorted(path for path in folder.iterdir() if path.name not in (layout.RECORD, layout.USED))
    except OSError:
        return []
    for path in names:
        base = _part_of(path.name)
        if base is not None:
            families.setdefault(base, []).append(path)
        elif path.name == layout.SCRATCH:
            loose += _wheels(path, ref)
        elif (why := _left_behind(path, whole)) is not None:
            digests = path.with_name(path.name + layout.CHUNKS)
            loose.append(_Item("partial", path, (path, digests), f"{ref}, {why}"))
    parts = [_family(folder / (base + layout.PART), found, ref) for base, found in families.items()]
    return parts + loose


def _left_behind(path: Path, whole: bool) -> str | None:
    """Why a file that is neither partial nor a wheel may go; None = it may not."""
    if path.name.startswith("."):
        return "left by work that was killed" if _is_old(path) else None
    if path.name.endswith(layout.CHUNKS):
        file = path.with_name(path.name.removesuffix(layout.CHUNKS))
        return None if whole or file.exists() else "digests without their file"
    return None if whole or not path.is_file() else "one file of a model that is not whole"


def _wheels(scratch: Path, ref: str) -> list[_Item]:
    """One item for each file; the folder goes with the last."""
    names = removal.tree(scratch)
    groups = [(name,) for name in names[:-1]] + [(name, scratch) for name in names[-1:]]
    return [_Item("partial", group[0], group, f"{ref}, as a wheel") for group in groups]


def _family(part: Path, names: list[Path], ref: str) -> _Item:
    return _Item("partial", part if part in names else names[0], tuple(names), ref)


def _part_of(name: str) -> str | None:
    """The file that a name is the partial, log or note of."""
    for end in _PART_ENDS:
        if name.endswith(end):
            return name.removesuffix(end)
    return None


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > _TEMPORARY_S
    except OSError:
        return False


def _quarantined(where: Layout) -> list[_Item]:
    found = []
    try:
        names = sorted(where.quarantine.iterdir())
    except OSError:
        return []
    for path in names:
        note = path.with_name(path.name + layout.NOTE)
        if path.name.endswith(layout.NOTE):
            if path.with_name(path.name.removesuffix(layout.NOTE)).exists():
                continue
            found.append(_Item("quarantined", path, (path,), "a note whose file is gone"))
            continue
        told = layout.read_json(note) or {}
        about = f"{told.get('ref', 'unknown model')}: {told.get('why', 'unknown reason')}"
        found.append(_Item("quarantined", path, (path, note), about))
    return found
