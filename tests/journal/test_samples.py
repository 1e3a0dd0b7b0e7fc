"""Samples on disk: an hour of seconds, a week of minutes, means of what is known, and no lies by a clock."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.journal import Journal
from appliance.journal.schema import SCHEMA_VERSION
from appliance.journal.timeline import Point
from appliance.journal.timeline.minutes import minutes
from appliance.journal.timeline.table import KEPT_S, TABLES, keep

MIDDAY = 1_777_896_000.0
"""The beginning of a minute."""
GPU = "gpu:GPU-0"


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite")
    await opened.open()
    yield opened
    await opened.close()


def hot(at: float, **values: object) -> Point:
    return replace(Point(at, GPU, name="RTX", state="warm", temperature=80.0), **values)  # type: ignore[arg-type]


def test_a_minute_is_the_mean_of_what_is_known() -> None:
    seen = [
        hot(MIDDAY, temperature=70.0, power=None, free=100, reasons=0x4, slowed_ns=10, plugged=True),
        hot(MIDDAY + 20, temperature=None, power=None, free=103, reasons=None, slowed_ns=30, state=None),
        hot(MIDDAY + 40, temperature=80.0, power=None, free=103, reasons=0x20, slowed_ns=None, plugged=False),
        hot(MIDDAY + 59.9, temperature=81.0, state="throttled"),
        hot(MIDDAY + 60, temperature=10.0, state="cool"),
    ]
    first, second = minutes(seen)
    assert (first.at, first.step, first.device, first.name, first.state) == (
        MIDDAY,
        60,
        GPU,
        "RTX",
        "throttled",
    )
    assert first.temperature == 77.0  # an unknown value is no zero
    assert (first.power, first.free, first.fan) == (None, 102, None)
    assert (first.reasons, first.slowed_ns, first.plugged) == (0x24, 30, False)
    assert (second.at, second.temperature, second.state) == (MIDDAY + 60, 10.0, "cool")


async def test_seconds_become_minutes_and_a_gap_stays_a_gap(journal: Journal) -> None:
    awake = [*range(90), *range(600, 660)]
    await journal.keep([hot(MIDDAY + s, temperature=float(s)) for s in awake], [], MIDDAY + 660)
    seconds = await journal.history(MIDDAY + 660, 900, 1, GPU)
    assert [row[0] - MIDDAY for row in seconds.devices[0].rows] == awake
    rows = (await journal.history(MIDDAY + 660, 900, 60, GPU)).devices[0].rows
    assert [(row[0] - MIDDAY, row[2]) for row in rows] == [(0, 29.5), (60, 74.5), (600, 629.5)]
    assert journal.lost == 0


async def test_minutes_do_not_depend_on_who_writes_them(tmp_path: Path) -> None:
    """A daemon that stops in the middle of a minute: the next one finishes it."""
    file = tmp_path / "j.sqlite"
    for begin in (0, 30):
        await (journal := Journal(file, clock=lambda: MIDDAY + 45)).open()
        batch = [hot(MIDDAY + begin + s, temperature=50.0 + begin) for s in range(30)]
        await journal.keep(batch, [], MIDDAY + begin + 30)
        (device,) = (await journal.history(MIDDAY + 61, 120, 60, GPU)).devices or (None,)
        await journal.close()
    assert device is not None
    assert [(row[0], row[2]) for row in device.rows] == [(MIDDAY, 65.0)]


def test_a_week_is_bounded_in_rows_and_bytes(tmp_path: Path) -> None:
    """Eight days, simulated: minute after minute, then the last hour second by second."""
    file = tmp_path / "week.sqlite"
    db = sqlite3.connect(file)
    db.execute("PRAGMA synchronous=OFF")
    db.execute("CREATE TABLE events (at REAL)")
    for statement in TABLES:
        db.execute(statement)
    devices = ["machine", "cpu", "gpu:GPU-5f2b7c1e-0000-0000-0000-000000000001"]
    full = Point(
        0, GPU, name="NVIDIA", state="cool", temperature=61.5, memory_temperature=70.25, headroom=31.5,
        margin=30.5, reasons=4, slowed_ns=123456789, power=210.4, power_limit=250.0, clock=1740.0, fan=45.0,
        utilisation=98.0, total=16 << 30, free=3 << 30, used_by_engine=9 << 30, factor=1.0,
    )  # fmt: skip
    end = MIDDAY + 8 * 86_400
    for at in range(int(MIDDAY), int(end) - 3_600, 3_600):
        with db:
            batch = [replace(full, at=float(at + s), device=n) for s in range(0, 3_600, 60) for n in devices]
            keep(db, batch, [], at + 3_600.0)
    for at in range(int(end) - 3_600, int(end), 60):
        with db:
            batch = [replace(full, at=at + s + 0.123, device=n) for s in range(60) for n in devices]
            keep(db, batch, [], at + 60.0)
    rows = dict(db.execute("SELECT step, COUNT(*) FROM samples GROUP BY step"))
    assert rows[1] <= len(devices) * (KEPT_S[1] + 60)
    assert rows[60] <= len(devices) * (KEPT_S[60] // 60 + 2)
    assert rows[60] >= len(devices) * (KEPT_S[60] // 60 - 2)
    (oldest,) = db.execute("SELECT MIN(at) FROM samples WHERE step = 60").fetchone()
    assert end - 7 * 86_400 - 120 <= oldest <= end - 7 * 86_400 + 60
    db.close()
    a_row = file.stat().st_size / sum(rows.values())
    assert a_row < 180, f"{a_row:.0f} bytes a row: sixteen devices would take {a_row * 219_000 / 1e6:.0f} MB"


async def test_a_clock_that_is_set_back_leaves_no_second_past(journal: Journal) -> None:
    ahead = [hot(MIDDAY + s, temperature=90.0) for s in range(130)]
    await journal.keep(ahead, [], MIDDAY + 130)
    await journal.forget_between(MIDDAY + 30, MIDDAY + 129)
    await journal.keep([hot(MIDDAY + s, temperature=40.0) for s in range(30, 90)], [], MIDDAY + 125)
    seconds = (await journal.history(MIDDAY + 130, 300, 1, GPU)).devices[0].rows
    assert [row[2] for row in seconds] == [90.0] * 30 + [40.0] * 60
    rows = (await journal.history(MIDDAY + 130, 300, 60, GPU)).devices[0].rows
    assert [(row[0] - MIDDAY, row[2]) for row in rows] == [(0, 65.0), (60, 40.0)]


async def test_a_full_disk_costs_samples_and_counts_them(journal: Journal, tmp_path: Path) -> None:
    await journal.keep([hot(MIDDAY)], [], MIDDAY + 1)

    def no_room() -> None:
        pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
        journal._connection.execute(f"PRAGMA max_page_count={pages}")

    await journal._run(no_room)
    many = [hot(MIDDAY + 1 + n / 100) for n in range(5_000)]
    await journal.keep(many, [], MIDDAY + 59)
    assert journal.lost == 5_000
    await journal._run(lambda: journal._connection.execute("PRAGMA max_page_count=100000"))
    await journal.keep([hot(MIDDAY + 58)], [], MIDDAY + 59)
    rows = (await journal.history(MIDDAY + 59, 60, 1, GPU)).devices[0].rows
    assert [row[0] - MIDDAY for row in rows] == [0, 58], "a batch is written in whole or not at all"


async def test_devices_that_are_gone_are_forgotten(journal: Journal) -> None:
    await journal.keep([replace(hot(MIDDAY), device="gpu:old"), hot(MIDDAY)], [], MIDDAY + 61)
    later = MIDDAY + 8 * 86_400
    await journal.keep([hot(later), hot(later + 61)], [], later + 125)
    found = await journal._run(
        lambda: journal._connection.execute("SELECT device, name FROM devices").fetchall()
    )
    assert found == [(GPU, "RTX")]


async def test_a_file_of_version_3_is_brought_up_and_keeps_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    journal = Journal(file)
    await journal.open()
    await journal.note("loaded", "a", "a is loaded.")
    await journal.close()
    with sqlite3.connect(file) as db:
        for table in ("samples", "decisions", "devices"):
            db.execute(f"DROP TABLE {table}")
        db.execute("DROP INDEX events_at")
        db.execute("ALTER TABLE requests DROP COLUMN places")
        db.execute("PRAGMA user_version=3")
    await (again := Journal(file)).open()
    await again.keep([hot(MIDDAY)], [], MIDDAY + 1)
    assert len((await again.history(MIDDAY + 1, 60)).devices) == 1
    assert [event.text for event in await again.events()] == ["a is loaded."]
    assert again.lost == 0
    await again.close()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert "places" in {row[1] for row in db.execute("PRAGMA table_info(requests)")}
