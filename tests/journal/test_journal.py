"""The journal keeps what was recorded, counts days as people do, and never fails a request."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import AsyncIterator
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from appliance.errors import ApplianceError
from appliance.journal import Journal, Row, Today

NOON = datetime(2026, 5, 4, 12, 0).timestamp()


def row(number: int, *, at: float = NOON, route: str = "local", status: int = 200) -> Row:
    return Row(
        request_id=f"r{number}", started_at=at, model="m", served_model="m", route=route, reason="local.ok",
        lane="interactive", path="/v1/chat/completions", status=status, tokens_in=3, tokens_out=None,
    )  # fmt: skip


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite")
    await opened.open()
    yield opened
    await opened.close()


async def test_rows_come_back_newest_first_and_unknown_stays_none(journal: Journal) -> None:
    now = datetime.now().timestamp()
    for number in range(3):
        await journal.record(row(number, at=now + number))
    found = await journal.recent(2)
    assert [r.request_id for r in found] == ["r2", "r1"]
    assert found[0] == row(2, at=now + 2)
    assert found[0].tokens_out is None


async def test_today_starts_at_local_midnight_and_a_client_that_left_is_no_error(journal: Journal) -> None:
    midnight = datetime(2026, 5, 4).timestamp()
    await journal.record(row(1, at=midnight - 1))
    await journal.record(row(2, at=midnight))
    await journal.record(row(3, route="remote"))
    await journal.record(row(4, status=499))
    await journal.record(row(5, route="none", status=429))
    assert await journal.today(NOON) == Today(local=1, remote=1, errors=1)


async def test_rows_survive_a_restart_and_the_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    first = Journal(file)
    await first.open()
    await first.record(row(1, at=datetime.now().timestamp()))
    await first.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second = Journal(file)
    await second.open()
    assert [r.request_id for r in await second.recent()] == ["r1"]
    await second.close()


async def test_old_rows_go_at_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    first = Journal(file)
    await first.open()
    now = datetime.now()
    await first.record(row(1, at=(now - timedelta(days=91)).timestamp()))
    await first.record(row(2, at=(now - timedelta(days=89)).timestamp()))
    await first.close()
    second = Journal(file)
    await second.open()
    assert [r.request_id for r in await second.recent()] == ["r2"]
    await second.close()


async def test_a_failing_disk_costs_the_row_and_nothing_else(journal: Journal) -> None:
    await journal._run(lambda: journal._connection.execute("DROP TABLE requests"))
    await journal.record(row(1))
    await journal.record(row(2))
    assert journal.lost == 2


async def test_a_file_of_a_newer_version_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(ApplianceError, match="newer version"):
        await Journal(file).open()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (99,)


async def test_a_file_that_is_not_sqlite_is_an_error_in_words(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    file.write_bytes(b"not a database" * 100)
    with pytest.raises(ApplianceError, match="can't be opened"):
        await Journal(file).open()


def test_no_column_can_hold_a_prompt_or_a_reply() -> None:
    names = {field.name for field in fields(Row)}
    assert not names & {"prompt", "messages", "content", "reply", "body", "text"}
