"""Speeds that were seen: by heat and power, and only where the replies can be compared."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import ApplianceError
from appliance.journal import Journal, Row, Seen, read_speeds
from appliance.journal.schema import SCHEMA_VERSION
from appliance.journal.speeds import ENOUGH_TOKENS, NEWEST

NOW = datetime.now().timestamp()
VERSION_1 = """
CREATE TABLE requests (
  request_id TEXT PRIMARY KEY, started_at REAL NOT NULL, model TEXT, served_model TEXT,
  route TEXT NOT NULL, reason TEXT NOT NULL, lane TEXT NOT NULL, path TEXT NOT NULL, status INTEGER NOT NULL,
  tokens_in INTEGER, tokens_out INTEGER, queue_ms REAL, ttft_ms REAL, tokens_per_second REAL, total_ms REAL,
  degraded TEXT, client TEXT);
CREATE INDEX requests_started_at ON requests (started_at);
PRAGMA user_version=1;
"""
"""A file as version 1 made it."""


def reply(speed: float, number: int = 0, **changes: Any) -> Row:
    """A local reply that counts as cold."""
    row = Row(
        request_id=f"r{number}-{speed}", started_at=NOW - 1_000 + number, model="qwen3-8b",
        served_model="qwen3-8b:Q4_K_M", route="local", reason="local.ok", lane="interactive",
        path="/v1/chat/completions", status=200, tokens_in=30, tokens_out=200, tokens_per_second=speed,
        thermal="cool", power="ac", streams=1, plan="b10434/37/f16",
    )  # fmt: skip
    return replace(row, **changes)


def version_1(file: Path, rows: int = 2) -> None:
    """A journal of version 1, in WAL mode as the daemon leaves it."""
    db = sqlite3.connect(file)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(VERSION_1)
    for number in range(rows):
        db.execute(
            "INSERT INTO requests (request_id, started_at, served_model, route, reason, lane, path, status,"
            " tokens_out, tokens_per_second) VALUES (?,?,?,?,?,?,?,?,?,?)",
            (
                f"old{number}",
                NOW - 500,
                "qwen3-8b:Q4_K_M",
                "local",
                "local.ok",
                "batch",
                "/v1",
                200,
                99,
                31.0,
            ),
        )
    db.commit()
    db.close()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite")
    await opened.open()
    yield opened
    await opened.close()


async def speeds(journal: Journal, *rows: Row) -> dict[str, float]:
    for row in rows:
        await journal.record(row)
    assert journal.lost == 0
    return {one.condition: one.tokens_per_second for one in await journal.speeds("qwen3-8b:Q4_K_M")}


async def test_each_condition_has_the_median_of_its_own_replies(journal: Journal) -> None:
    hot = {"thermal": "throttled", "degraded": "throttled"}
    found = await speeds(
        journal,
        *(reply(speed, n) for n, speed in enumerate((30.0, 31.0, 2.0))),
        *(reply(speed, n + 10, **hot) for n, speed in enumerate((19.0, 18.0, 20.0))),
        reply(17.0, 20, thermal="critical"),
        *(reply(speed, n + 30, power="battery") for n, speed in enumerate((9.0, 10.0, 8.0))),
    )
    assert found == {"cold": 30.0, "hot": 18.5, "battery": 9.0}
    by = {one.condition: one for one in await journal.speeds("qwen3-8b:Q4_K_M")}
    assert (by["hot"].n, by["hot"].last_at) == (4, NOW - 1_000 + 20)


async def test_nothing_is_seen_before_it_was(journal: Journal) -> None:
    assert await speeds(journal) == {}
    assert await speeds(journal, reply(30.0)) == {"cold": 30.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"streams": 2},
        {"streams": None},
        {"tokens_out": ENOUGH_TOKENS - 1},
        {"tokens_out": None},
        {"tokens_per_second": None},
        {"degraded": "cpu_fallback"},
        {"degraded": "cpu_fallback,throttled"},
        {"degraded": "fewer_layers"},
        {"thermal": None},
        {"thermal": "unknown"},
        {"thermal": "warm"},
        {"power": None},
        {"route": "remote"},
        {"status": 499},
        {"plan": None},
        {"served_model": "qwen3-8b:Q8_0"},
    ],
    ids=str,
)
async def test_a_reply_that_can_not_be_compared_counts_for_nothing(
    journal: Journal, changes: dict[str, Any]
) -> None:
    assert await speeds(journal, reply(30.0, **changes)) == {}


async def test_hot_on_battery_is_battery_and_unknown_power_is_not_hot(journal: Journal) -> None:
    found = await speeds(
        journal,
        reply(7.0, 1, thermal="throttled", power="battery"),
        reply(8.0, 2, thermal="throttled", power=None),
        reply(9.0, 3, thermal=None, power="battery"),
    )
    assert found == {"battery": 8.0}


async def test_only_replies_by_one_plan_are_compared(journal: Journal) -> None:
    """A GPU engine came, or layers went to RAM: hot before is no slow-down of cold now."""
    old = {"plan": "b10434/0/f16"}
    found = await speeds(
        journal,
        reply(4.0, 1, **old), reply(3.0, 2, thermal="throttled", **old), reply(30.0, 3),
    )  # fmt: skip
    assert found == {"cold": 30.0}
    asked = await journal.speeds("qwen3-8b:Q4_K_M", "b10434/0/f16")
    assert [(one.condition, one.tokens_per_second) for one in asked] == [("cold", 4.0), ("hot", 3.0)]


async def test_the_newest_replies_decide(journal: Journal) -> None:
    old = [reply(10.0 + n / 1_000, n) for n in range(NEWEST)]
    new = [reply(30.0 + n / 1_000, 100 + n) for n in range(NEWEST)]
    assert (await speeds(journal, *old, *new))["cold"] > 30.0


async def test_a_file_of_version_1_is_brought_up_and_keeps_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "journal.sqlite"
    version_1(file)
    for _ in range(2):  # the second time there is nothing to do
        journal = Journal(file)
        await journal.open()
        rows = await journal.recent()
        assert {row.request_id for row in rows} == {"old0", "old1"}
        assert (rows[0].thermal, rows[0].power, rows[0].streams, rows[0].plan) == (None, None, None, None)
        assert await journal.speeds("qwen3-8b:Q4_K_M") == ()
        await journal.close()
    await (journal := Journal(file)).open()
    assert await speeds(journal, reply(30.0)) == {"cold": 30.0}
    await journal.close()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_migration_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    """Whatever part of the columns is there: the rest is added."""
    file = tmp_path / "journal.sqlite"
    version_1(file)
    with sqlite3.connect(file) as db:
        db.execute("ALTER TABLE requests ADD COLUMN power TEXT")
    journal = Journal(file)
    await journal.open()
    assert await speeds(journal, reply(30.0)) == {"cold": 30.0}
    assert len(await journal.recent()) == 3
    await journal.close()


async def test_a_file_that_can_not_be_brought_up_is_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "journal.sqlite"
    version_1(file)
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("CREATE VIEW requests_served AS SELECT 1")  # the name of the new index is taken
    holder.close()
    with pytest.raises(ApplianceError, match="can't be opened"):
        await Journal(file).open()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert "thermal" not in {row[1] for row in db.execute("PRAGMA table_info(requests)")}


async def test_the_file_is_read_while_the_daemon_writes_it(journal: Journal, tmp_path: Path) -> None:
    await journal.record(reply(30.0))
    assert read_speeds(tmp_path / "journal.sqlite", "qwen3-8b:Q4_K_M") == (
        Seen("cold", 30.0, 1, NOW - 1_000),
    )
    await journal.record(reply(10.0, 1, power="battery"))
    found = read_speeds(tmp_path / "journal.sqlite", "qwen3-8b:Q4_K_M")
    assert [one.condition for one in found] == ["cold", "battery"]


async def test_reading_without_a_daemon_changes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    await journal.open()
    await journal.record(reply(30.0))
    await journal.close()
    before = (tmp_path / "journal.sqlite").read_bytes()
    assert len(read_speeds(tmp_path / "journal.sqlite", "qwen3-8b:Q4_K_M")) == 1
    assert os.listdir(tmp_path) == ["journal.sqlite"]
    assert (tmp_path / "journal.sqlite").read_bytes() == before


def test_an_absent_an_older_a_newer_and_a_broken_file_tell_nothing(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("absent", "old", "newer", "broken", "empty", "folder")}
    version_1(files["old"])
    with sqlite3.connect(files["newer"]) as db:
        db.execute("PRAGMA user_version=99")
    files["broken"].write_bytes(b"no database" * 100)
    files["empty"].touch()
    files["folder"].mkdir()
    for name, file in files.items():
        assert read_speeds(file, "qwen3-8b:Q4_K_M") == (), name
    assert not files["absent"].exists()
    with sqlite3.connect(files["old"]) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,), "a reader brings nothing up"


async def test_a_locked_file_tells_nothing_and_holds_nobody_up(tmp_path: Path) -> None:
    file = tmp_path / "journal.sqlite"
    journal = Journal(file)
    await journal.open()
    await journal.record(reply(30.0))
    await journal.close()
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    holder.execute("DELETE FROM requests")
    assert read_speeds(file, "qwen3-8b:Q4_K_M") == ()
    holder.execute("ROLLBACK")
    holder.close()
    assert len(read_speeds(file, "qwen3-8b:Q4_K_M")) == 1
