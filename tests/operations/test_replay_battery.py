"""Power and the battery policy in a replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appliance.operations.replay import Under
from appliance.routing import decide
from appliance.settings import Governor, Settings
from tests.operations.test_replay_recorded import FEATURES, LOCAL, NOW, VIEW, hot, line, played

COOL = hot(headroom=30.0)
BATCH = replace(FEATURES, lane="batch")
PULLED = {"at": NOW + 1, "kind": "battery", "plugged": False}


def under(battery: Any) -> Under:
    return Under.of(Settings(governor=Governor(battery=battery)), battery)


@pytest.mark.parametrize(
    ("battery", "features", "power", "reason"),
    [
        ("full", FEATURES, "battery", "local.ok"),
        ("saver", FEATURES, "battery", "local.ok"),
        ("saver", BATCH, "battery", "remote.battery"),
        ("remote", FEATURES, "battery", "remote.battery"),
        ("remote", FEATURES, "unknown", "local.ok"),
        ("remote", replace(FEATURES, wish="local"), "battery", "local.pinned"),
    ],
)
def test_the_policy_of_today_meets_the_power_of_then(
    battery: Any, features: Any, power: Any, reason: str
) -> None:
    view = replace(VIEW, power=power)
    (verdict,) = played([*COOL, line(20, decide(features, view), view, features)], under(battery)).verdicts
    assert verdict.now == reason


def test_what_the_trace_says_of_the_plug_counts_first() -> None:
    rows = [*COOL, PULLED, line(20, decide(FEATURES, VIEW))]
    (verdict,) = played(rows, under("remote")).verdicts
    assert (verdict.before, verdict.now) == ("local.ok", "remote.battery")


def test_a_saver_of_then_does_not_outlive_its_setting() -> None:
    spared = replace(LOCAL, running=1, at_once=1, eases="the machine runs on battery", predicted_wait_s=3.0)
    view = replace(VIEW, local=spared, power="battery", battery="saver", remotes=())
    rows = [*COOL, line(20, decide(BATCH, view), view, BATCH)]
    (verdict,) = played(rows, under("full")).verdicts
    assert (verdict.before, verdict.now) == ("local.queued", "local.ok")
