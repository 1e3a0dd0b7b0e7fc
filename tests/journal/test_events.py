"""Events: in order, bounded, private, and in files of older versions, too."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from appliance.journal import Journal
from appliance.journal import events as events_room
from appliance.journal.schema import SCHEMA_VERSION


async def opened(file: Path) -> Journal:
    journal = Journal(file)
    await journal.open()
    return journal


async def test_events_come_back_oldest_first_and_can_be_followed(tmp_path: Path) -> None:
    journal = await opened(tmp_path / "j.sqlite")
    await journal.note("loaded", "a:Q4_1", "a:Q4_1 is loaded.")
    await journal.note("crashed", "a:Q4_1", "It ended.", "signal 9 (SIGKILL)")
    await journal.note("saved", None, "Three caches.")
    found = await journal.events(2)
    assert [(e.kind, e.ref, e.detail) for e in found] == [
        ("crashed", "a:Q4_1", "signal 9 (SIGKILL)"),
        ("saved", None, None),
    ]
    assert await journal.events(10, after=found[0].number) == found[1:]
    assert await journal.events(10, after=found[1].number) == ()
    await journal.close()


async def test_only_the_newest_stay_and_numbers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_room, "KEPT_EVENTS", 150)
    file = tmp_path / "j.sqlite"
    journal = await opened(file)
    for number in range(400):
        await journal.note("loaded", "a", f"{number}")
    assert [e.text for e in await journal.events(1_000)] == [str(n) for n in range(250, 400)]
    await journal.close()
    again = await opened(file)
    await again.note("loaded", "a", "next")
    assert (await again.events(1))[0].number == 401
    await again.close()


async def test_an_older_file_gets_the_table_and_keeps_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    with sqlite3.connect(file) as db:
        db.execute(
            "CREATE TABLE requests (request_id TEXT PRIMARY KEY, started_at REAL NOT NULL, model TEXT,"
            " served_model TEXT, route TEXT NOT NULL, reason TEXT NOT NULL, lane TEXT NOT NULL,"
            " path TEXT NOT NULL, status INTEGER NOT NULL, tokens_in INTEGER, tokens_out INTEGER,"
            " queue_ms REAL, ttft_ms REAL, tokens_per_second REAL, total_ms REAL, degraded TEXT, client TEXT,"
            " thermal TEXT, power TEXT, streams INTEGER, plan TEXT)"
        )
        db.execute(
            "INSERT INTO requests (request_id, started_at, route, reason, lane, path, status)"
            " VALUES ('r1', ?, 'local', 'local.ok', 'batch', '/v1', 200)",
            (time.time(),),
        )
        db.execute("PRAGMA user_version=2")
    journal = await opened(file)
    await journal.note("loaded", "a", "a is loaded.")
    assert [e.text for e in await journal.events()] == ["a is loaded."]
    assert [row.request_id for row in await journal.recent()] == ["r1"]
    await journal.close()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


async def test_a_text_of_a_stranger_is_cleaned_and_cut(tmp_path: Path) -> None:
    journal = await opened(tmp_path / "j.sqlite")
    await journal.note("failed", "a", "bad \x1b[2J" + "x" * 10_000, "two\nlines")
    (event,) = await journal.events()
    assert "\x1b" not in event.text
    assert len(event.text) <= 2_000
    assert event.detail is not None
    assert "\n" not in event.detail
    await journal.close()


async def test_a_failing_disk_costs_the_event_and_nothing_else(tmp_path: Path) -> None:
    journal = await opened(tmp_path / "j.sqlite")
    await journal._run(lambda: journal._connection.execute("DROP TABLE events"))
    await journal.note("loaded", "a", "a is loaded.")
    assert journal.lost == 1
    await journal.close()
