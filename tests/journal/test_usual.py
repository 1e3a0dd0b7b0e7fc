"""Speeds of earlier days that a usual speed is learned from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from appliance.journal import Journal, Row
from appliance.journal.timeline import Point
from appliance.journal.usual import CoolSpeed

COOL = Row(
    "req_1", 1.0, "m", "m:Q4", "local", "local.ok", "interactive", "/v1/chat/completions", 200,
    tokens_in=100, tokens_out=20, tokens_per_second=50.0, thermal="cool", power="ac", streams=2, plan="p",
)  # fmt: skip


async def test_only_complete_local_replies_on_a_cool_machine_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    await journal.open()
    others = (
        replace(COOL, thermal="warm"), replace(COOL, thermal=None), replace(COOL, route="remote"),
        replace(COOL, status=502), replace(COOL, plan=None), replace(COOL, power=None),
        replace(COOL, streams=None), replace(COOL, tokens_out=7), replace(COOL, tokens_per_second=None),
    )  # fmt: skip
    for number, row in enumerate((replace(COOL, started_at=2.0, tokens_per_second=60.0), COOL, *others)):
        await journal.record(replace(row, request_id=f"req_{number}"))
    assert await journal.cool_speeds() == (
        CoolSpeed("m:Q4", "p", "ac", 2, 120, 50.0),
        CoolSpeed("m:Q4", "p", "ac", 2, 120, 60.0),
    )
    await journal.close()


async def test_a_number_that_no_column_holds_costs_its_batch_and_is_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    await journal.open()
    await journal.keep([Point(1.0, "gpu:a", total=10**40)], [], 2.0)
    assert journal.lost == 1
    await journal.keep([Point(2.0, "machine", cpu_percent=3.0)], [], 3.0)
    assert journal.lost == 1
    await journal.close()
