"""The record of a verified variant: one JSON, written after the last file matched.

It stands beside the files. A file that was imported by reference is where the user has it: its entry has an
absolute `path`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.catalog import File, ModelRef
from appliance.store import layout
from appliance.store.types import Stored, StoredFile

log = logging.getLogger("appliance.store")

_VERSION = 1
_WRONG: set[tuple[Path, int, int, int, int]] = set()
"""Files whose bytes are wrong though a record that can't be changed speaks for them."""


def stored_file(path: Path, file: File, *, referenced: bool = False) -> StoredFile:
    """What the file system says now of a file whose bytes just matched `file`.

    `referenced`: it is the user's own, where it is; else it is in the store.
    """
    stat = path.stat()
    return StoredFile(
        path,
        stat.st_size,
        file.sha256,
        file.role,
        stat.st_mtime_ns,
        stat.st_ctime_ns,
        stat.st_ino,
        stat.st_dev,
        referenced,
        file.base_name if referenced else None,
    )


def unchanged(file: StoredFile) -> bool:
    """True when `file` is as it was when it was verified, and was not found wrong since."""
    return rests(file) and (not _WRONG or _seen(file) not in _WRONG)


def rests(file: StoredFile) -> bool:
    """True when size, both times and inode are those of `file`.

    The change time is what tells a write whose modification time was set back: nobody can set it.
    """
    try:
        stat = file.path.stat()
    except OSError:
        return False
    now = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    return now == (file.size, file.mtime_ns, file.ctime_ns, file.inode)


def _seen(file: StoredFile) -> tuple[Path, int, int, int, int]:
    return file.path, file.size, file.mtime_ns, file.ctime_ns, file.inode


def write(folder: Path, ref: ModelRef, files: Sequence[StoredFile]) -> Stored:
    """Record that all files of `ref` are in `folder` and verified now."""
    source = ref.variant.source.model_dump(mode="json")
    if "url" in source:
        source["url"] = source["url"].partition("?")[0]  # a query may hold a signature
    now = time.time()
    layout.write_json(
        folder / layout.RECORD,
        {
            "version": _VERSION,
            "id": ref.id,
            "quant": ref.quant,
            "source": source,
            "verified_at": now,
            "main": ref.variant.main.base_name,
            "files": [_entry(file) for file in files],
        },
    )
    _mended(folder)
    layout.sync_folder(folder)
    main = _main(folder, files, ref.variant.main.base_name)
    return Stored(ref.ref, ref.id, ref.quant, tuple(files), now, main, _origin(source))


def renew(folder: Path, files: Sequence[StoredFile]) -> Stored | None:
    """Record that the files of `folder` matched again now; all else stays. None = its record is gone."""
    found = layout.read_json(folder / layout.RECORD)
    if found is None:
        return None
    entries = [_entry(file) for file in files]
    layout.write_json(folder / layout.RECORD, found | {"verified_at": time.time(), "files": entries})
    _mended(folder)
    layout.sync_folder(folder)
    return read(folder)


def _mended(folder: Path) -> None:
    """What an earlier check found wrong no longer counts: the record is newer than the marker."""
    with contextlib.suppress(OSError):
        (folder / layout.DAMAGED).unlink(missing_ok=True)


def withdraw(folder: Path, *, noted: bool) -> bool:
    """Let the record say nothing any more. False = the system refuses that.

    Unless the damage was `noted`, its empty file stays, which needs no room and tells that a model was here.
    """
    record = folder / layout.RECORD
    try:
        if noted:
            record.unlink(missing_ok=True)
            return True
    except OSError:
        pass  # a folder that can't be written may hold a file that can
    try:
        os.truncate(record, 0)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def distrust(file: StoredFile) -> None:
    """Its bytes are wrong, and its record can't be withdrawn: this process reads it before each use."""
    _WRONG.add(_seen(file))


def trust(files: Sequence[StoredFile]) -> None:
    """Their bytes were read and are right."""
    _WRONG.difference_update(_seen(file) for file in files)


def read(folder: Path) -> Stored | None:
    """The record of `folder`; None when there is none or it can't be understood (it is then checked anew)."""
    found = layout.read_json(folder / layout.RECORD)
    if found is None:
        return None
    try:
        if found["version"] != _VERSION:
            return None
        model_id, quant = str(found["id"]), str(found["quant"])
        files = tuple(_file(folder, entry) for entry in found["files"])
        main = _main(folder, files, Path(str(found["main"])).name)
        verified_at, origin = float(found["verified_at"]), _origin(found.get("source"))
        return Stored(f"{model_id}:{quant}", model_id, quant, files, verified_at, main, origin)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        log.info("the record in %s can't be understood; the files are checked again", folder)
        return None


def _origin(source: object) -> str | None:
    if not isinstance(source, Mapping) or source.get("kind") != "file":
        return None
    path = source.get("path")
    return path if isinstance(path, str) else None


def _entry(file: StoredFile) -> dict[str, Any]:
    """What `_file` reads."""
    return {
        "name": file.name, "size": file.size, "sha256": file.sha256, "role": file.role,
        "mtime_ns": file.mtime_ns, "ctime_ns": file.ctime_ns, "inode": file.inode, "device": file.device,
        **({"path": str(file.path)} if file.referenced else {}),
    }  # fmt: skip


def _file(folder: Path, entry: Mapping[str, Any]) -> StoredFile:
    """One file of a record. `path` is there for the user's own files only: they are not in `folder`."""
    name = Path(str(entry["name"])).name
    referenced = "path" in entry
    path = Path(str(entry["path"])) if referenced else folder / name
    if referenced and not path.is_absolute():
        raise ValueError(f"{path} is not absolute")
    return StoredFile(
        path, int(entry["size"]), str(entry["sha256"]), entry["role"],
        int(entry["mtime_ns"]), int(entry["ctime_ns"]), int(entry["inode"]), int(entry["device"]),
        referenced, name if referenced else None,
    )  # fmt: skip


def _main(folder: Path, files: Sequence[StoredFile], name: str) -> Path:
    return next((file.path for file in files if file.name == name), folder / name)


def pinned(folder: Path, ref: ModelRef) -> Stored | None:
    """The record of `folder` when it speaks of the present pins of `ref`; its files are not looked at."""
    stored = read(folder)
    return stored if stored is not None and matches_pin(stored, ref) else None


def intact(stored: Stored) -> bool:
    """True when every file is `unchanged`."""
    return all(unchanged(file) for file in stored.files)


def matches_pin(stored: Stored, ref: ModelRef) -> bool:
    """True when the record speaks of exactly the files that the catalog pins now."""
    pinned = [(file.base_name, file.size, file.sha256) for file in ref.variant.files]
    return [(file.name, file.size, file.sha256) for file in stored.files] == pinned
