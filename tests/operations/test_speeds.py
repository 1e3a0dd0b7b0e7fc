"""Speeds for people: every condition has a place, and what was not seen is unknown."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from appliance import paths as paths_room
from appliance.journal import Journal, Row
from appliance.operations.lessons.speeds import seen
from tests.engines.launches import plan as written


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths_room.Paths:
    monkeypatch.setenv("APPLIANCE_HOME", str(tmp_path))
    return paths_room.find().make()


def test_without_a_journal_nothing_was_seen(paths: paths_room.Paths) -> None:
    assert seen(paths, "qwen3-8b:Q4_K_M") == {"cold": None, "hot": None, "battery": None}
    assert not paths.journal_file.exists()


async def test_what_was_seen_is_a_number_and_the_rest_stays_unknown(paths: paths_room.Paths) -> None:
    journal = Journal(paths.journal_file)
    await journal.open()
    await journal.record(
        Row(
            request_id="r", started_at=time.time(), model="qwen3-8b", served_model="qwen3-8b:Q4_K_M",
            route="local", reason="local.ok", lane="interactive", path="/v1/chat/completions", status=200,
            tokens_out=100, tokens_per_second=9.5, thermal="cool", power="battery", streams=1, plan="p",
        )
    )  # fmt: skip
    assert seen(paths, "qwen3-8b:Q4_K_M") == {"cold": None, "hot": None, "battery": 9.5}
    await journal.close()
    assert seen(paths, "qwen3-8b:Q4_K_M") == {"cold": None, "hot": None, "battery": 9.5}
    assert seen(paths, "qwen3-8b:Q8_0") == {"cold": None, "hot": None, "battery": None}


async def test_speeds_of_another_plan_are_not_those_of_this_one(paths: paths_room.Paths) -> None:
    mine = replace(written(gpu_layers=20), engine_build="b", kv_type="f16")
    journal = Journal(paths.journal_file)
    await journal.open()
    now = time.time()
    for number, (plan, speed) in enumerate((("b/20/f16", 12.0), ("b/31/f16", 40.0))):
        await journal.record(
            Row(
                request_id=f"r{number}", started_at=now + number, model="m", served_model="m:Q4",
                route="local", reason="local.ok", lane="interactive", path="/v1/chat/completions", status=200,
                tokens_out=100, tokens_per_second=speed, thermal="cool", power="ac", streams=1, plan=plan,
            )
        )  # fmt: skip
    await journal.close()
    assert seen(paths, "m:Q4", mine)["cold"] == 12.0
    assert seen(paths, "m:Q4", replace(mine, gpu_layers=31))["cold"] == 40.0
    assert set(seen(paths, "m:Q4", replace(mine, kv_type="q8_0")).values()) == {None}
    assert seen(paths, "m:Q4")["cold"] == 40.0, "without a plan that of the newest reply"
