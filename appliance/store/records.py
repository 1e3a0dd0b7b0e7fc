"""The record of a verified variant: one JSON beside its files, written after the last file matched."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from appliance.catalog import File, ModelRef
from appliance.store import layout
from appliance.store.types import Stored, StoredFile

log = logging.getLogger("appliance.store")

_VERSION = 1


def stored_file(path: Path, file: File) -> StoredFile:
    """What the file system says now of a file whose bytes just matched `file`."""
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
    )


def unchanged(file: StoredFile) -> bool:
    """True when size, both times and inode are those of the time it was verified.

    The change time is what tells a write whose modification time was set back: nobody can set it.
    """
    try:
        stat = file.path.stat()
    except OSError:
        return False
    now = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    return now == (file.size, file.mtime_ns, file.ctime_ns, file.inode)


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
            "files": [
                {
                    "name": file.path.name, "size": file.size, "sha256": file.sha256, "role": file.role,
                    "mtime_ns": file.mtime_ns, "ctime_ns": file.ctime_ns,
                    "inode": file.inode, "device": file.device,
                }
                for file in files
            ],
        },
    )  # fmt: skip
    layout.sync_folder(folder)
    return Stored(ref.ref, ref.id, ref.quant, tuple(files), now, folder / ref.variant.main.base_name)


def read(folder: Path) -> Stored | None:
    """The record of `folder`; None when there is none or it can't be understood (it is then checked anew)."""
    found = layout.read_json(folder / layout.RECORD)
    if found is None:
        return None
    try:
        if found["version"] != _VERSION:
            return None
        model_id, quant = str(found["id"]), str(found["quant"])
        files = tuple(
            StoredFile(
                folder / Path(str(f["name"])).name, int(f["size"]), str(f["sha256"]), f["role"],
                int(f["mtime_ns"]), int(f["ctime_ns"]), int(f["inode"]), int(f["device"]),
            )
            for f in found["files"]
        )  # fmt: skip
        main = folder / Path(str(found["main"])).name
        return Stored(f"{model_id}:{quant}", model_id, quant, files, float(found["verified_at"]), main)
    except (KeyError, TypeError, ValueError):
        log.warning("the record in %s can't be understood; the files are checked again", folder)
        return None


def matches_pin(stored: Stored, ref: ModelRef) -> bool:
    """True when the record speaks of exactly the files that the catalog pins now."""
    pinned = [(file.base_name, file.size, file.sha256) for file in ref.variant.files]
    return [(file.path.name, file.size, file.sha256) for file in stored.files] == pinned
