"""The file read beside the daemon that writes it, or without one: nothing in it is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from appliance.errors import ApplianceError
from appliance.journal.schema import SCHEMA_VERSION, columns, version_of

T = TypeVar("T")
_BUSY_S = 0.5
"""Seconds that a reader waits for a locked file."""
_AWAY = "Stop the daemon and move the file away; `appliance up` begins a new one."


def read(file: Path, since_version: int, call: Callable[[sqlite3.Connection], T], nothing: T) -> T:
    """What `call` finds in the file; `nothing` when it is absent, locked, no journal, older than
    `since_version` or newer than ours."""
    try:
        return look(file, since_version, call)
    except ApplianceError:
        return nothing


def look(file: Path, since_version: int, call: Callable[[sqlite3.Connection], T]) -> T:
    """What `call` finds in the file. Raises ApplianceError, which says why it can't be read."""
    # without a log beside it nobody has the file open: `immutable` then leaves no new files there
    mode = "mode=ro" if file.with_name(f"{file.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        db = sqlite3.connect(f"{file.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_S)
    except sqlite3.Error as error:
        raise _unreadable(file, error) from error
    try:
        db.execute("PRAGMA query_only=ON")
        found = version_of(db)
        if found > SCHEMA_VERSION:
            raise newer(file, found)
        if not columns(db):
            raise ApplianceError(f"{file} is no journal of ours.", cause="It has no requests.", hint=_AWAY)
        if found < since_version:
            raise ApplianceError(
                f"The journal {file} was written by an older version.",
                cause=f"It has schema {found}; this needs {since_version}.",
                hint="`appliance up` brings it up to date.",
            )
        return call(db)
    except (sqlite3.Error, ValueError) as error:
        raise _unreadable(file, error) from error
    finally:
        db.close()


def newer(file: Path, found: int) -> ApplianceError:
    """The file has a schema that only a later version knows."""
    return ApplianceError(
        f"The journal {file} was written by a newer version.",
        cause=f"It has schema {found}; this version knows {SCHEMA_VERSION}.",
        hint="Install the newer version again, or move the file away.",
    )


def _unreadable(file: Path, error: Exception) -> ApplianceError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # without its details
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        hint = "Try again in a moment; if it stays so, end the program that holds the file."
        return ApplianceError(f"The journal {file} is locked.", cause=str(error), hint=hint)
    if code == sqlite3.SQLITE_NOTADB:
        return ApplianceError(f"{file} is no journal of ours.", cause=str(error), hint=_AWAY)
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR):
        hint = "See that it is a file that you may read, and that its disk answers."
        return ApplianceError(f"The journal {file} can't be opened.", cause=str(error), hint=hint)
    return ApplianceError(f"The journal {file} is damaged.", cause=str(error), hint=_AWAY)
