"""What the daemon tells of its journal: pages of the timeline, and rows that were lost."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.daemon.commands.house import HouseCommands
from appliance.daemon.status import file_problems
from appliance.errors import UsageError
from appliance.journal import Journal
from appliance.journal.timeline import Point


async def test_following_next_gives_every_line_and_more_says_when_there_is_one(tmp_path: Path) -> None:
    now = float(int(time.time()))
    await (journal := Journal(tmp_path / "j.sqlite")).open()
    await journal.keep([Point(now - 10 + at, "gpu:0", temperature=50.0) for at in range(7)], [], now)

    async def flush() -> None: ...

    house = object.__new__(HouseCommands)
    house._rooms = cast(Any, SimpleNamespace(journal=journal, recorder=SimpleNamespace(flush=flush)))
    newest = await house.timeline(60, None, 2)
    assert [line["at"] for line in newest["lines"]] == [now - 5, now - 4]
    assert (newest["more"], newest["next"]) == (False, now - 4)
    assert (await house.timeline(60, newest["next"], 2))["lines"] == []
    seen, after, more = [], now - 11, True
    while more:
        page = await house.timeline(60, after, 3)
        assert page["lines"]
        seen += [line["at"] for line in page["lines"]]
        after, more = page["next"], page["more"]
    assert seen == [now - 10 + at for at in range(7)]
    await journal.close()


async def test_a_device_that_there_never_was_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    now = time.time()
    await (journal := Journal(tmp_path / "j.sqlite")).open()
    await journal.keep([Point(now - 7_000, "gpu:old", temperature=50.0)], [], now - 7_000)

    async def flush() -> None: ...

    house = object.__new__(HouseCommands)
    here = SimpleNamespace(snapshot=SimpleNamespace(gpus=(SimpleNamespace(id="new"),)))
    house._rooms = cast(
        Any, SimpleNamespace(journal=journal, monitor=here, recorder=SimpleNamespace(flush=flush))
    )
    for known in ("gpu:old", "gpu:new", "cpu", "machine", None):  # with or without samples of the time
        assert (await house.history(60, None, known))["devices"] == []
    with pytest.raises(UsageError, match="gpu:0 is no device here") as caught:
        await house.history(60, None, "gpu:0")
    assert caught.value.hint == "Known are cpu, gpu:new, gpu:old, machine."
    await journal.close()


async def test_rows_that_the_disk_did_not_take_are_told_with_the_reason(tmp_path: Path) -> None:
    await (journal := Journal(tmp_path / "j.sqlite")).open()
    assert file_problems(None, None, journal.lost, journal.problem) == ()
    await journal._run(lambda: journal._connection.execute("DROP TABLE events"))
    for _ in range(3):
        await journal.note("loaded", "a", "a is loaded.")
    (note,) = file_problems(None, None, journal.lost, journal.problem)
    assert note.code == "journal_lost"
    assert note.detail == "3 rows of the journal could not be written since the start: no such table: events"
    assert note.todo == "Free disk space on the state folder."
    await journal.close()


@pytest.mark.parametrize(("lost", "begins"), [(1, "1 row of"), (2, "2 rows of")])
def test_rows_without_an_error_were_too_many_for_the_disk(lost: int, begins: str) -> None:
    (note,) = file_problems(None, None, lost)
    assert note.detail.startswith(begins)
    assert note.detail.endswith("the disk was too slow.")
