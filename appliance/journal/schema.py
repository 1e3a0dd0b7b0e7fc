"""The tables of the journal, and how a file of an older version becomes one of this."""

from __future__ import annotations

import sqlite3

from appliance.journal.timeline import table as timeline

SCHEMA_VERSION = 4

_TABLE = """
CREATE TABLE IF NOT EXISTS requests (
  request_id TEXT PRIMARY KEY, started_at REAL NOT NULL, model TEXT, served_model TEXT,
  route TEXT NOT NULL, reason TEXT NOT NULL, lane TEXT NOT NULL, path TEXT NOT NULL, status INTEGER NOT NULL,
  tokens_in INTEGER, tokens_out INTEGER, queue_ms REAL, ttft_ms REAL, tokens_per_second REAL, total_ms REAL,
  degraded TEXT, client TEXT, thermal TEXT, power TEXT, streams INTEGER, plan TEXT,
  places TEXT)
"""
_EVENTS = """
CREATE TABLE IF NOT EXISTS events (
  number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, ref TEXT,
  text TEXT NOT NULL, detail TEXT)
"""
"""Since version 3."""
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS requests_started_at ON requests (started_at)",
    "CREATE INDEX IF NOT EXISTS requests_served ON requests (served_model, started_at)",
)
_ADDED = (
    (2, (("thermal", "TEXT"), ("power", "TEXT"), ("streams", "INTEGER"), ("plan", "TEXT"))),
    (4, (("places", "TEXT"),)),
)  # fmt: skip
"""Columns by the version that brought them. Columns are only ever added: an old row has NULL there."""


def bring_up(db: sqlite3.Connection) -> None:
    """Make a new file, or one of an older version, one of this version: in whole or not at all.

    The file's version must not be newer. Raises sqlite3.Error.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute(_TABLE)
        db.execute(_EVENTS)
        here = columns(db)
        for _, added in _ADDED:
            for name, kind in added:
                if name not in here:
                    db.execute(f"ALTER TABLE requests ADD COLUMN {name} {kind}")
        for statement in timeline.TABLES:
            db.execute(statement)
        for index in _INDEXES:
            db.execute(index)
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION:d}")
    except BaseException:
        db.rollback()
        raise
    db.commit()


def version_of(db: sqlite3.Connection) -> int:
    """The version of a file; 0 for a new one."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def columns(db: sqlite3.Connection) -> frozenset[str]:
    """The columns that the file has; none without a table."""
    return frozenset(str(row[1]) for row in db.execute("PRAGMA table_info(requests)"))
