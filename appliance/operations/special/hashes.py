"""The SHA-256 of files outside the store, read again only when they changed.

Remembered in `hashed.json`: by path, what the file system said when it was hashed. A file whose size, both
times and inode are the same is the same: nobody can set the change time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appliance.errors import ModelMissing, NotVerified
from appliance.paths import Paths
from appliance.store import layout, local, threads

log = logging.getLogger("appliance.models")

MOST = 256
"""Files remembered; the oldest is forgotten."""
_READS = 3
"""How often a file that moves while it is hashed is read before it is given up."""
_VERSION = 1
_State = tuple[int, int, int, int]


async def sha256_of(paths: Paths, file: Path) -> str:
    """The hash of the file as it is now. A cancel ends the reading.

    Raises ModelMissing when it is not there or can't be read, NotVerified when it keeps changing.
    """
    stop = threads.StopFlag()
    return await threads.run(stop, _sha256_of, paths, file, stop)


def _sha256_of(paths: Paths, file: Path, stop: threads.StopFlag) -> str:
    try:
        file = file.resolve()
        before = _state(file)
        known = _read(paths.hashed).get(str(file))
        if known is not None and known["state"] == list(before):
            return str(known["sha256"])
        for _ in range(_READS):
            found = local.digest(file, stop, lambda _: None)
            after = _state(file)
            if after == before:
                _remember(paths.hashed, file, before, found)
                return found
            before = after
    except OSError as error:
        raise ModelMissing(
            f"{file} can't be read.",
            cause=error.strerror or str(error),
            hint="Put the file back there, connect its disk, or correct the path in config.toml.",
        ) from None
    raise NotVerified(f"{file} keeps changing.", hint="Let the program that writes it end, then try again.")


def _state(file: Path) -> _State:
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _read(file: Path) -> dict[str, dict[str, Any]]:
    """What is remembered, oldest first; nothing when there is none, or when it is broken."""
    found = layout.read_json(file)
    if found is None:
        return {}
    rows = found.get("files") if found.get("version") == _VERSION else None
    if not isinstance(rows, dict) or not all(_is_row(row) for row in rows.values()):
        log.warning("%s is broken: the files are hashed again", file)
        return {}
    return rows


def _is_row(row: object) -> bool:
    return (
        isinstance(row, Mapping)
        and isinstance(row.get("state"), list)
        and isinstance(row.get("sha256"), str)
        and len(row["sha256"]) == 64
    )


def _remember(record: Path, file: Path, state: _State, sha256: str) -> None:
    rows = _read(record)
    rows.pop(str(file), None)
    rows[str(file)] = {"state": list(state), "sha256": sha256}
    kept = dict(list(rows.items())[-MOST:])
    try:
        layout.write_json(record, {"version": _VERSION, "files": kept}, durable=False)
    except OSError as error:
        log.warning("%s can't be written (%s): the file is hashed again next time", record, error.strerror)
