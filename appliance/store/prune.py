"""What can go: partials, quarantined files, models unused for long, and what dead processes left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from appliance.errors import ApplianceError
from appliance.store import layout, remains, removal
from appliance.store.layout import Layout
from appliance.store.lock import Lock, drop_stale, stale
from appliance.store.remains import Item
from appliance.store.types import Leftover, Pruned


@dataclass(slots=True)
class _Sweep:
    """What went, or would go, and the first refusal: one file that can't go keeps no other."""

    dry_run: bool
    tally: removal.Tally = field(default_factory=removal.Tally)
    gone: list[Pruned] = field(default_factory=list)
    refused: ApplianceError | None = None

    def take(self, items: Iterable[Item]) -> None:
        for item in items:
            size = sum(self.tally.freed(name) for name in item.names)
            with self.kept():
                if not self.dry_run:
                    for name in item.names:
                        removal.delete(name)
                self.gone.append(Pruned(item.kind, item.path, size, item.about))

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep a refusal for the end."""
        try:
            yield
        except ApplianceError as error:
            self.refused = self.refused or error


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
    result is what comes free: it adds up to the real figure. Raises ApplianceError when the system refused
    something; the rest has gone.
    """
    sweep = _Sweep(dry_run)
    for path in _stale_locks(where):
        size = sweep.tally.freed(path)
        with sweep.kept():
            if dry_run or _dropped(path):
                about = f"of {path.stem.replace('~', ':')}, its process is gone"
                sweep.gone.append(Pruned("lock", path, size, about))
    sweep.take(Item("empty", path, (path,), "nothing is in it") for path in _empty(where))
    for folder in where.folders():
        ref = layout.ref_of(folder)
        with sweep.kept(), _held(where, ref, dry_run) as ours:
            if not ours:
                continue
            unused = remains.unused(folder, unused_s) if unused_s is not None and ref not in keep else None
            sweep.take([unused] if unused else remains.partials(folder) if partials else [])
            if not dry_run and (not folder.exists() or remains.is_bare(folder)):
                removal.delete(folder)
                removal.drop_empty(folder.parent)
    if quarantine:
        left = remains.marked_only(where)
        sweep.take(remains.quarantined(where))
        sweep.take(left)
        for item in left:
            removal.drop_empty(item.path.parent)
    if sweep.refused is not None:
        raise sweep.refused
    return tuple(sweep.gone)


def leftovers(where: Layout) -> tuple[Leftover, ...]:
    """Every unfinished and every quarantined file, those of a transfer that is running now, too."""
    items = [item for folder in where.folders() for item in remains.partials(folder)]
    shown = [item for item in items if not item.path.name.endswith(remains.NOTES)]
    found = [_leftover(item) for item in [*shown, *remains.quarantined(where)]]
    return tuple(item for item in found if item is not None)


def strangers(where: Layout) -> tuple[Path, ...]:
    """Files in the folders of variants that are not ours: they stay whatever is pruned."""
    return tuple(path for folder in where.folders() for path in remains.foreign(folder))


def _leftover(item: Item) -> Leftover | None:
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
    if dry_run:
        yield Lock(where.lock(ref)).owner() is None
        return
    with removal.cleared(where, ref) as holder:
        yield holder is None


def _dropped(path: Path) -> bool:
    try:
        return drop_stale(path)
    except OSError as error:
        raise removal.refused(path, error) from None


def _stale_locks(where: Layout) -> list[Path]:
    return [path for path in sorted(where.locks.glob("*.json")) if stale(path)]


def _empty(where: Layout) -> list[Path]:
    """Folders that hold no file at all, the upper one only when both are empty."""
    found = [top for top in where.tops() if remains.is_bare(top)]
    return found + [f for f in where.folders() if f.parent not in found and remains.is_bare(f)]
