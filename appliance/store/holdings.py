"""What each variant takes on this disk, how much of it is here, and its last load. Reads no model bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from appliance.store import disk, layout, marker, partlog, remains, removal
from appliance.store.layout import Layout
from appliance.store.types import Holding


def holdings(where: Layout) -> Mapping[str, Holding]:
    """By `id:QUANT`: every variant that has a folder. Raises ApplianceError when nothing can be read."""
    found: dict[str, Holding] = {}
    damaged, aside = marker.damaged(where), remains.quarantined_refs(where)
    for folder in where.folders():
        ref = layout.ref_of(folder)
        found[ref] = _joined(found.get(ref), _holding(folder, ref in damaged, ref in aside))
    return found


def _holding(folder: Path, damaged: bool, aside: bool) -> Holding:
    names = removal.tree(folder)
    sizes = {path: _size(path) for path in names}
    arrived = None if remains.is_recorded(folder) else sum(_arrived(path) for path in names)
    return Holding(sum(sizes.values()), arrived or None, remains.last_used(folder), damaged, aside)


def _size(path: Path) -> int:
    try:
        return disk.used(path.lstat())
    except OSError:
        return 0  # it went away while we looked


def _arrived(path: Path) -> int:
    """The bytes of a pinned file that are here: finished, or as its log tells."""
    name = path.name
    if name.startswith(".") or path.parent.name == layout.SCRATCH or name.endswith(remains.NOTES):
        return 0
    if name.endswith(layout.PART):
        known = partlog.read(path.with_name(name.removesuffix(layout.PART) + layout.LOG))
        if known is not None:
            return sum(line.length for line in known[1].values())
    try:
        found = path.lstat()
    except OSError:
        return 0
    return min(found.st_size, disk.used(found))


def _joined(one: Holding | None, other: Holding) -> Holding:
    """Of two folders of one variant (an older pin, and the present one)."""
    if one is None:
        return other
    return Holding(
        one.disk + other.disk,
        max(one.arrived or 0, other.arrived or 0) or None,
        max(one.used_at or 0.0, other.used_at or 0.0) or None,
        one.damaged or other.damaged,
        one.quarantined or other.quarantined,
    )
