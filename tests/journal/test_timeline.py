"""One timeline: in order, in pages that miss nothing, from the file as from the daemon; and curves of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.journal import Journal, Row
from appliance.journal.timeline import Decided, Page, Point, moment_of, read_timeline, to_line
from appliance.journal.timeline import history as histories

MIDDAY = 1_777_896_000.0
GPU = "gpu:GPU-0"
ROW = Row(
    "r1", MIDDAY + 2, "m", "m:Q4", "local", "local.ok", "batch", "/v1/completions", 200,
    client="my agent", plan="b1/31/f16", places="GPU-0,cpu",
)  # fmt: skip
DECIDED = Decided(MIDDAY + 1, "r1", "first", "m", "local", "local.ok", "It is free.", features={"model": "m"})


def seen(at: float, device: str = GPU, temperature: float | None = 60.0) -> Point:
    return Point(MIDDAY + at, device, state="cool", temperature=temperature)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite", clock=lambda: MIDDAY)
    await opened.open()
    yield opened
    await opened.close()


async def filled(journal: Journal) -> None:
    await journal.keep([seen(0), seen(0, "cpu"), seen(3)], [DECIDED], MIDDAY + 4)
    await journal.record(ROW)
    await journal.note("thermal", GPU, "RTX is warm, was cool.")
    await journal._run(lambda: journal._connection.execute("UPDATE events SET at = ?", (MIDDAY + 2.5,)))
    await journal._run(lambda: journal._connection.commit())


async def test_all_kinds_stand_in_one_order_of_time(journal: Journal) -> None:
    await filled(journal)
    page = await journal.timeline(MIDDAY, MIDDAY + 10)
    lines = [to_line(entry) for entry in page.entries]
    assert [(line["at"] - MIDDAY, line["kind"]) for line in lines] == [
        (0, "sample"), (0, "sample"), (1, "decision"), (2, "request"), (2.5, "event"), (3, "sample"),
    ]  # fmt: skip
    assert page.entries[2:4] == (DECIDED, ROW)
    assert lines[2]["features"] == {"model": "m"}
    assert (lines[3]["places"], lines[3]["plan"]) == (["GPU-0", "cpu"], "b1/31/f16")
    assert (lines[4]["event"], lines[4]["ref"]) == ("thermal", GPU)
    assert "my agent" not in json.dumps(lines)
    assert "power" not in lines[0], "what is unknown is left out"


async def test_pages_miss_nothing_and_repeat_nothing(journal: Journal) -> None:
    points = [seen(at, f"gpu:{n}") for at in range(20) for n in range(5)]
    await journal.keep(points, [], MIDDAY + 20)
    found, since = [], MIDDAY
    for _ in range(100):
        page = await journal.timeline(since, MIDDAY + 60, 7, newest=False)
        found += [(entry.at, entry.device) for entry in page.entries if isinstance(entry, Point)]
        if not page.more:
            break
        since = moment_of(page.entries[-1]) + 0.001
    assert found == [(point.at, point.device) for point in points]
    newest = await journal.timeline(MIDDAY, MIDDAY + 60, 7)
    assert [moment_of(entry) - MIDDAY for entry in newest.entries] == [18.0] * 5 + [19.0] * 5
    assert newest.more


async def test_seconds_where_they_are_kept_and_minutes_before(journal: Journal) -> None:
    for begin in range(0, 2 * 3_600, 60):
        await journal.keep([seen(begin + s) for s in range(0, 60, 5)], [], MIDDAY + begin + 60)
    page = await journal.timeline(MIDDAY, MIDDAY + 7_200, 20_000)
    points = [entry for entry in page.entries if isinstance(entry, Point)]
    steps = [point.step for point in points]
    assert steps == sorted(steps, reverse=True)
    covered = sum(60 if step == 60 else 5 for step in steps)
    assert covered == 7_200, "no time is missing, none is there twice"


async def test_the_file_tells_the_same_and_is_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "j.sqlite"
    await (journal := Journal(file, clock=lambda: MIDDAY)).open()
    await filled(journal)
    while_it_runs = read_timeline(file, MIDDAY, MIDDAY + 10)
    assert while_it_runs == await journal.timeline(MIDDAY, MIDDAY + 10)
    await journal.close()
    before = file.read_bytes()
    assert read_timeline(file, MIDDAY, MIDDAY + 10) == while_it_runs
    assert file.read_bytes() == before


def test_a_file_that_is_none_or_of_another_version_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"no database" * 100)
    for version in (3, 99):
        with sqlite3.connect(tmp_path / str(version)) as db:
            db.execute(f"PRAGMA user_version={version}")
    for name in ("absent", "broken", "3", "99"):
        assert read_timeline(tmp_path / name, 0, 2 * MIDDAY) == Page((), more=False), name


async def test_a_long_history_is_thinned_to_the_worst(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "MOST_ROWS", 1_500)
    rows = [
        replace(
            seen(n), temperature=95.0 if n == 1_001 else 60.0, headroom=-5.0 if n == 1_001 else 30.0,
            state="critical" if n == 1_001 else "cool", reasons=1 << (n % 2 * 5), power=float(n % 2),
            utilisation=None,
        )
        for n in range(3_500)
    ]  # fmt: skip
    await journal.keep(rows, [], MIDDAY + 3_500)
    history = await journal.history(MIDDAY + 3_500, 3_600, device=GPU)
    (device,) = history.devices
    spot = {name: place for place, name in enumerate(device.columns)}
    assert history.step == 3
    assert len(device.rows) <= 1_500
    hottest = max(device.rows, key=lambda row: row[spot["temperature"]])
    assert (hottest[spot["temperature"]], hottest[spot["headroom"]], hottest[spot["state"]]) == (
        95.0,
        -5.0,
        "critical",
    )
    assert hottest[0] <= MIDDAY + 1_001 < hottest[0] + 3
    whole = device.rows[10]
    assert (whole[spot["reasons"]], whole[spot["utilisation"]]) == (0x21, None)
    assert 0 < whole[spot["power"]] < 1


async def test_each_kind_of_device_has_its_columns(journal: Journal) -> None:
    host = Point(MIDDAY, "machine", state="cool", plugged=False, running=1.0, swap_used=0)
    await journal.keep([host, seen(0), seen(0, "cpu")], [], MIDDAY + 1)
    found = (await journal.history(MIDDAY + 1, 60)).to_json()
    by = {one["device"]: dict(zip(one["columns"], one["rows"][0], strict=True)) for one in found["devices"]}
    assert (found["step"], found["from"], found["to"]) == (1, MIDDAY - 59, MIDDAY + 1)
    assert by["machine"]["plugged"] is False
    assert (by["machine"]["swap_used"], by["machine"]["ram_available"]) == (0, None)
    assert "battery_percent" not in by[GPU]
    assert "critical_at" in by["cpu"]
    assert (await journal.history(MIDDAY + 1, 60, device="gpu:nobody")).devices == ()
