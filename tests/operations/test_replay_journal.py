"""This machine's journal as a trace: a file that can't be read says which of many reasons it is."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from appliance.errors import ApplianceError
from appliance.journal import Journal
from appliance.journal.timeline import Point
from appliance.operations.replay import source


@pytest.fixture
async def journal(tmp_path: Path) -> Path:
    file, now = tmp_path / "journal.sqlite", time.time()
    await (made := Journal(file)).open()
    await made.keep([Point(now - 60 + at, "gpu:GPU-1", headroom=1.0) for at in range(50)], [], now)
    await made.close()
    return file


def test_a_journal_that_cant_be_read_says_why_and_not_to_ask_for_longer(
    journal: Path, tmp_path: Path
) -> None:
    def told(file: Path) -> str:
        with pytest.raises(ApplianceError) as caught:
            source.of_journal(file, time.time(), 1_800)
        error = caught.value
        assert error.hint
        assert "longer" not in error.hint
        assert str(file) in error.message
        return f"{error.message} {error.cause} {error.hint}"

    whole, other = journal.read_bytes(), tmp_path / "other.sqlite"
    other.write_bytes(b"no database" * 1_000)
    assert "is no journal of ours" in told(other)
    assert "move the file away" in told(other)
    other.write_bytes(whole[:4_096] + bytes(byte ^ 0x5A for byte in whole[4_096:]))
    assert "is damaged" in told(other)
    assert "move the file away" in told(other)
    for version, name, words in (
        (0, "foreign", "is no journal of ours"),
        (99, "newer", "written by a newer version. It has schema 99"),
    ):
        with sqlite3.connect(tmp_path / name) as db:
            db.execute("CREATE TABLE notes (text)")
            db.execute(f"PRAGMA user_version={version}")
        db.close()
        assert words in told(tmp_path / name)
    other.write_bytes(whole)
    with sqlite3.connect(other) as db:
        db.execute("PRAGMA user_version=3")
    db.close()
    assert "written by an older version" in told(other)
    assert "`appliance up`" in told(other)


def test_a_journal_that_is_held_says_so(journal: Path) -> None:
    holder = sqlite3.connect(journal, isolation_level=None)
    try:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("CREATE TABLE held (text)")
        with pytest.raises(ApplianceError, match="is locked") as caught:
            source.of_journal(journal, time.time(), 1_800)
    finally:
        holder.close()
    assert "Try again" in (caught.value.hint or "")
