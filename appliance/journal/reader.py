"""The file read beside the daemon that writes it, or without one: nothing in it is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from appliance.journal.schema import SCHEMA_VERSION, version_of

T = TypeVar("T")
_BUSY_S = 0.5
"""Seconds that a reader waits for a locked file."""


def read(file: Path, since_version: int, call: Callable[[sqlite3.Connection], T], nothing: T) -> T:
    """What `call` finds in the file; `nothing` when it is absent, locked, no journal, older than
    `since_version` or newer than ours."""
    # without a log beside it nobody has the file open: `immutable` then leaves no new files there
    mode = "mode=ro" if file.with_name(f"{file.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        db = sqlite3.connect(f"{file.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_S)
    except sqlite3.Error:
        return nothing
    try:
        db.execute("PRAGMA query_only=ON")
        return call(db) if since_version <= version_of(db) <= SCHEMA_VERSION else nothing
    except (sqlite3.Error, ValueError):
        return nothing
    finally:
        db.close()
