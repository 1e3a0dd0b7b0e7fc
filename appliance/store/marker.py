"""A model that was here and is damaged is remembered, until it is mended or removed.

What a check found stands in `.damaged` of the variant's folder: a damaged file that became the partial file
of its repair, or is in quarantine, would else look like one that was never here. Where the disk takes no
marker, what can be seen has to do.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from appliance.store import layout, records
from appliance.store.layout import Layout
from appliance.store.types import Damage, DamageAction, DamageKind, Stored
from appliance.text import clean_line

log = logging.getLogger("appliance.store")

_VERSION = 1
_KINDS = get_args(DamageKind)
_ACTIONS = get_args(DamageAction)
_TEXT = 1_000


@dataclass(frozen=True, slots=True)
class Marked:
    """What is wrong with a variant that was here."""

    ref: str
    """`id:QUANT`; the id alone where even the folder of the id can't be read."""
    damage: tuple[Damage, ...]
    """One at least."""
    origin: str | None = None
    """As in `Stored`."""

    @property
    def stored(self) -> Stored:
        """What is left of its record, for `upkeep.error_of`."""
        model_id, _, quant = self.ref.partition(":")
        return Stored(self.ref, model_id, quant, (), 0.0, Path(), self.origin)


def write(folder: Path, marked: Marked) -> bool:
    """Remember what is wrong in `folder`. False: the disk does not take it."""
    damage = [item.to_json() for item in marked.damage]
    document = {"v": _VERSION, "time": time.time(), "damage": damage, "origin": marked.origin}
    try:
        layout.write_json(folder / layout.DAMAGED, document)
    except OSError as error:
        log.info("that %s is damaged can't be noted: %s", folder, error.strerror)
        return False
    return True


def is_marked(folder: Path) -> bool:
    """Whether a check found damage in `folder`; `read` tells if that still counts."""
    return os.path.lexists(folder / layout.DAMAGED)


def read(folder: Path) -> Marked | None:
    """What the last check of `folder` found; None when nothing is damaged, or it was mended since."""
    if not is_marked(folder):
        return None
    found = layout.read_json(folder / layout.DAMAGED) or {}
    stored, at = records.read(folder), found.get("time")
    if stored is not None and (not isinstance(at, int | float) or stored.verified_at > at):
        return None
    items, origin = found.get("damage"), found.get("origin")
    damage = [_damage(item) for item in items] if isinstance(items, list) else []
    told = tuple(item for item in damage if item is not None) or (_unknown(folder),)
    return Marked(layout.ref_of(folder), told, origin if isinstance(origin, str) else None)


def seen(folder: Path) -> Marked | None:
    """What is wrong in a variant's folder as far as that shows without reading models; None: nothing."""
    ref = layout.ref_of(folder)
    try:
        names = set(os.listdir(folder))
    except OSError as error:
        return Marked(ref, (_closed(folder, error),))
    if layout.DAMAGED in names and (known := read(folder)) is not None:
        return known
    if layout.RECORD not in names:
        return None
    stored = records.read(folder)
    if stored is None:
        return Marked(ref, (_torn(folder / layout.RECORD),))
    gone = _missing(stored)
    return Marked(ref, gone, stored.origin) if gone else None


def damaged(where: Layout) -> Mapping[str, Marked]:
    """By `ref`: every variant that was here, is damaged, and is whole in no other folder.

    Reads no model bytes. Raises ApplianceError when the model folder can't be read.
    """
    found, whole = dict[str, Marked](), set[str]()
    for folder in where.folders():
        marked, ref = seen(folder), layout.ref_of(folder)
        if marked is not None:
            found[ref] = marked
        elif (folder / layout.RECORD).exists():
            whole.add(ref)
    for top in where.closed():
        found[top.name] = Marked(top.name, (_closed(top, PermissionError()),))
    return {ref: found[ref] for ref in sorted(found) if ref not in whole}


def _missing(stored: Stored) -> tuple[Damage, ...]:
    """A reference is not counted: the disk that it is on may come back."""
    gone = [file for file in stored.files if not file.referenced and not _is_file(file.path)]
    return tuple(_plain(file.name, "missing", f"{file.name} is missing", None) for file in gone)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return True  # not to be told; a check says more


def _torn(record: Path) -> Damage:
    if not os.access(record, os.R_OK):
        return _plain(record.name, "forbidden", f"{record} may not be read by this user", record)
    text = f"{record.name} can't be understood, so nothing tells that the files beside it are still good"
    return _plain(record.name, "unreadable", text, record)


def _closed(folder: Path, error: OSError) -> Damage:
    if isinstance(error, PermissionError):
        return _plain(folder.name, "forbidden", f"{folder} may not be read by this user", folder)
    why = error.strerror or type(error).__name__
    return _plain(
        folder.name, "unreadable", f"{folder} can't be read ({why}): the disk may be failing", folder
    )


def _unknown(folder: Path) -> Damage:
    text = "an earlier check found damage, and its note can't be read any more"
    return _plain(layout.DAMAGED, "changed", text, folder)


def _plain(name: str, kind: DamageKind, text: str, kept: Path | None) -> Damage:
    return Damage(name, kind, text, None, None, None, "left", kept)


def _damage(item: Any) -> Damage | None:
    """What `Damage.to_json` wrote; None when it can't be understood."""
    try:
        if item["kind"] not in _KINDS or item["action"] not in _ACTIONS:
            return None
        ranges = item["ranges"]
        return Damage(
            clean_line(str(item["file"]), _TEXT),
            item["kind"],
            clean_line(str(item["text"]), _TEXT),
            None if ranges is None else tuple((int(start), int(end)) for start, end in ranges),
            None if item["chunks"] is None else int(item["chunks"]),
            None if item["of_chunks"] is None else int(item["of_chunks"]),
            item["action"],
            None if item["kept"] is None else Path(str(item["kept"])),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
