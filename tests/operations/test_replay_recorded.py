"""Recorded decisions under other settings: what would have been decided, by the router's own functions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import ApplianceError, SettingsError, UsageError
from appliance.journal import Journal
from appliance.journal.rows import Row
from appliance.journal.timeline import Decided, Point, to_line
from appliance.operations.replay import Report, Under, read, replay, source
from appliance.operations.replay.settings_of import under_of
from appliance.operations.replay.source import Source
from appliance.paths import Paths
from appliance.routing import (
    Decision,
    Features,
    LocalView,
    RemoteView,
    View,
    after_failure,
    after_wait,
    decide,
)
from appliance.settings import Goals, Governor, Routing, Settings

NOW = 1_767_225_600.0
DEFAULTS = Under.of(Settings(), "the defaults")
FEATURES = Features("m", prompt_tokens=300, max_tokens=200)
LOCAL = LocalView("ready", 2, 0, 0, 64, 0.0, 4096, "cool", 1.0, True, 0.5, 5.0, 40.0)
BIG = RemoteView("big", True, True, 32_768, ttft_s=0.4, finish_s=3.0)
VIEW = View("local-first", 8.0, 2.0, LOCAL, (BIG,), 15.0)


def line(
    at: float, made: Decision, view: View = VIEW, features: Features = FEATURES, **more: Any
) -> Mapping[str, Any]:
    return to_line(
        Decided(
            NOW + at, more.pop("request_id", f"req_{at:g}"), more.pop("moment", "first"), features.model,
            made.target, made.reason, made.detail, made.remote, asdict(features), asdict(view), more,
        )
    )  # fmt: skip


def hot(until: int = 30, **values: Any) -> list[Mapping[str, Any]]:
    """A GPU that is above its threshold from the beginning: critical after 5 s."""
    known = {"temperature": 95.0, "headroom": -1.0} | values
    return [to_line(Point(NOW + at, "gpu:GPU-1", **known)) for at in range(until)]


def played(lines: Sequence[Mapping[str, Any]], under: Under = DEFAULTS) -> Report:
    text = "\n".join(json.dumps(one) for one in sorted(lines, key=lambda one: float(one["at"])))
    return replay(read(text.encode(), "recorded"), under)


def test_nothing_differs_where_the_rule_is_the_one_of_then() -> None:
    critical = replace(VIEW, local=replace(LOCAL, thermal="critical"))
    rows = [line(2, decide(FEATURES, VIEW)), line(20, decide(FEATURES, critical), critical)]
    report = played([*hot(), *rows])
    assert [(one.before, one.now, one.now_remote) for one in report.verdicts] == [
        ("local.ok", "local.ok", None), ("remote.thermal", "remote.thermal", "big")]  # fmt: skip
    assert report.differ == ()
    assert report.to_json()["reasons"] == {
        side: {"local.ok": 1, "remote.thermal": 1} for side in ("before", "now")}  # fmt: skip


def test_a_patient_governor_keeps_a_request_here_and_both_reasons_are_told() -> None:
    critical = replace(VIEW, local=replace(LOCAL, thermal="critical"))
    then = decide(FEATURES, critical)
    patient = Under.of(Settings(governor=Governor(hold=60.0)), "patient")
    report = played([*hot(), line(20, then, critical)], patient)
    (verdict,) = report.differ
    assert (verdict.request_id, verdict.before, verdict.now) == ("req_20", "remote.thermal", "local.ok")
    assert verdict.before_detail == then.detail
    assert verdict.now_detail == decide(FEATURES, VIEW).detail
    assert report.to_json()["reasons"]["now"] == {"local.ok": 1}


def test_policy_and_goals_of_today_decide() -> None:
    rows = [*hot(headroom=30.0), line(20, decide(FEATURES, VIEW))]
    for settings, reason in (
        (Settings(routing=Routing(policy="fastest")), "remote.faster"),
        (Settings(routing=Routing(policy="remote-only")), "remote.rule"),
        (Settings(goals=Goals(ttft=0.45)), "remote.faster"),
        (Settings(), "local.ok"),
    ):
        (verdict,) = played(rows, Under.of(settings, "other")).verdicts
        assert verdict.now == reason


def test_a_full_queue_is_measured_by_the_settings_of_today() -> None:
    view = replace(VIEW, local=replace(LOCAL, running=2, waiting=5, predicted_wait_s=1.0), remotes=())
    rows = [*hot(headroom=30.0), line(20, decide(FEATURES, view), view)]
    (verdict,) = played(rows, Under.of(Settings(routing=Routing(max_queue=5)), "short")).verdicts
    assert (verdict.before, verdict.now) == ("local.queued", "reject.queue_full")


def test_later_decisions_are_made_by_the_functions_that_made_them() -> None:
    queued = replace(VIEW, local=replace(LOCAL, running=2, waiting=1, predicted_wait_s=1.0, decode_s=None))
    waited = after_wait(FEATURES, queued, 9.0)
    failed = after_failure(FEATURES, VIEW, "local", "it broke")
    gone = after_failure(FEATURES, VIEW, "remote", "it broke", remote="big")
    rows = [
        *hot(headroom=30.0),
        line(10, waited, queued, moment="waited", waited_s=9.0),
        line(11, failed, moment="failed", failed="local"),
        line(12, gone, moment="failed", failed="remote", remote="big"),
    ]
    report = played(rows)
    assert [(one.moment, one.before, one.now) for one in report.verdicts] == [
        ("waited", "remote.queue", "remote.queue"),
        ("failed", "remote.engine_down", "remote.engine_down"),
        ("failed", "local.fallback", "local.fallback"),
    ]
    longer = Under.of(Settings(routing=Routing(max_wait=20.0)), "longer")
    assert [one.now for one in played(rows, longer).differ] == ["local.queued"]


def test_replies_of_the_trace_tell_how_slow_it_is() -> None:
    """Five cool replies make a usual speed; three at a third of it under heat make it throttled."""
    plain = Row("r", 0, "m", "m", "local", "local.ok", "interactive", "/v1/chat/completions", 200, 300, 200,
                power="ac", streams=1, plan="p")  # fmt: skip

    def reply(at: float, speed: float) -> Mapping[str, Any]:
        return to_line(replace(plain, started_at=NOW + at, tokens_per_second=speed, total_ms=500.0))

    speeds = [reply(at, 30.0) for at in (1, 3, 5, 7, 9)] + [reply(at, 10.0) for at in (21, 23, 25)]
    rows = [
        *hot(20, headroom=30.0),
        *[{**one, "at": one["at"] + 20} for one in hot(20, headroom=1.0)],
        *speeds,
    ]
    report = played([*rows, line(35, decide(FEATURES, VIEW))])
    assert [(moved.at - NOW, moved.after) for moved in report.moved if moved.what == "GPU-1"] == [
        (0, "cool"), (20, "warm"), (26, "throttled")]  # fmt: skip
    (verdict,) = report.differ
    assert (verdict.before, verdict.now) == ("local.ok", "remote.thermal")
    assert "33% of its speed" in verdict.now_detail


def test_heat_counts_for_a_model_by_where_its_last_reply_was_made() -> None:
    """The GPU is slow under heat; what runs on the CPU beside it is not."""

    def reply(at: float, model: str, places: str, speed: float) -> Mapping[str, Any]:
        return {
            "at": NOW + at, "kind": "speed", "model": model, "plan": "p", "tokens_per_second": speed,
            "places": [places],
        }  # fmt: skip

    cool = [to_line(Point(NOW + at, "gpu:GPU-1", temperature=60.0, headroom=30.0)) for at in range(10)]
    warm = [to_line(Point(NOW + at, "gpu:GPU-1", temperature=89.0, headroom=1.0)) for at in range(10, 30)]
    cpu = [to_line(Point(NOW + at, "cpu", temperature=50.0, headroom=40.0)) for at in range(30)]
    usual = [reply(1 + 0.1 * number, "on-gpu", "GPU-1", 50.0) for number in range(5)]
    slow = [reply(15 + 0.1 * number, "on-gpu", "GPU-1", 10.0) for number in range(3)]
    elsewhere = reply(16, "on-cpu", "cpu", 20.0)
    asked = [
        line(20, decide(FEATURES, VIEW), features=replace(FEATURES, model=model), request_id=model)
        for model in ("on-gpu", "on-cpu")
    ]
    report = played([*cool, *warm, *cpu, *usual, *slow, elsewhere, *asked])
    assert {one.request_id: one.now for one in report.verdicts} == {
        "on-gpu": "remote.thermal", "on-cpu": "local.ok"}  # fmt: skip


def test_a_decision_without_its_view_is_counted_and_not_invented() -> None:
    row = {name: value for name, value in line(20, decide(FEATURES, VIEW)).items() if name != "view"}
    report = played([*hot(), row])
    assert report.verdicts == ()
    assert any("1 recorded decision" in note for note in report.notes)


def test_states_of_then_stand_beside_those_of_now() -> None:
    rows = hot(31, state="critical")
    report = played(rows)
    assert report.recorded == {"GPU-1": {"critical": 30.0}}
    assert report.seconds == {"GPU-1": {"warm": 5.0, "critical": 25.0}}


def test_means_of_minutes_are_said_to_be_means() -> None:
    rows = [to_line(Point(NOW + at * 60, "gpu:GPU-1", step=60, headroom=-1.0)) for at in range(5)]
    report = played(rows)
    assert [moved.after for moved in report.moved if moved.what == "GPU-1"] == ["warm"]
    assert any("means of a minute" in note for note in report.notes)
    assert report.seconds == {"GPU-1": {"warm": 240.0}}


@pytest.fixture
async def journal(paths: Paths) -> Path:
    paths.make()
    made = Journal(paths.journal_file)
    await made.open()
    now = time.time()
    points = [Point(now - 100 + at, "gpu:GPU-1", headroom=-1.0) for at in range(30)]
    await made.keep(points, [], now)
    await made.note("loaded", "m", "m is loaded.")
    await made.close()
    return paths.journal_file


async def test_this_machines_journal_is_replayed_and_not_changed(journal: Path) -> None:
    before = {file.name: file.read_bytes() for file in journal.parent.iterdir() if file.is_file()}
    found = source.of_journal(journal, time.time(), 1_800)
    report = replay(read(found.data, found.name), DEFAULTS)
    assert [moved.after for moved in report.moved if moved.what == "GPU-1"] == ["warm", "critical"]
    assert {file.name: file.read_bytes() for file in journal.parent.iterdir() if file.is_file()} == before
    pages = list(source.entries(journal, 0, time.time() + 9, most=7))
    assert len(pages) == 7


async def test_cool_replies_of_before_are_the_usual_speed(paths: Paths) -> None:
    paths.make()
    made = Journal(paths.journal_file)
    await made.open()
    now = time.time()
    plain = Row("", 0, "m", "m", "local", "local.ok", "interactive", "/v1/chat/completions", 200, 300, 200,
                power="ac", streams=1, plan="p", thermal="cool", total_ms=500.0)  # fmt: skip
    for number, (ago, speed, changes) in enumerate(
        [
            (7_200, 30.0, {}),
            (7_100, 3.0, {"thermal": "throttled"}),
            (7_000, 3.0, {"degraded": "cpu_fallback"}),
            (6_900, 3.0, {"route": "remote"}),
            (50, 10.0, {"thermal": "warm"}),
            (48, 10.0, {"thermal": "warm"}),
            (46, 10.0, {"thermal": "warm"}),
        ]
    ):
        known: dict[str, Any] = {
            "request_id": str(number),
            "started_at": now - ago,
            "tokens_per_second": speed,
        }
        await made.record(replace(plain, **(known | changes)))
    points = [Point(now - 60 + at, "gpu:GPU-1", headroom=1.0) for at in range(50)]
    await made.keep(points, [], now)
    await made.close()
    found = source.of_journal(paths.journal_file, now, 60)
    report = replay(read(found.data, found.name), DEFAULTS)
    assert [moved.after for moved in report.moved if moved.what == "GPU-1"] == ["warm", "throttled"]
    why = [moved.why for moved in report.moved if moved.after == "throttled"]
    assert "33% of its usual speed" in why[0]


async def test_a_journal_that_tells_nothing_is_no_empty_success(journal: Path, tmp_path: Path) -> None:
    with pytest.raises(ApplianceError, match="holds nothing of the last 10"):
        source.of_journal(journal, time.time() - 7_200, 10)
    with pytest.raises(ApplianceError) as caught:
        source.of_journal(tmp_path / "none.sqlite", time.time(), 10)
    assert "no daemon has run here" in caught.value.message
    assert caught.value.exit_code == 1


def test_settings_of_a_file_are_judged_in_the_words_of_the_settings(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[governor]\nhold = "9s"\n')
    monkeypatch.setenv("APPLIANCE_GOVERNOR__HOLD", "20s")
    trace = Source("x", b"")
    assert under_of(file, trace, paths).rule.hold == 9.0, "the file alone"
    assert under_of(None, trace, paths).rule.hold == 20.0, "this machine's, with its environment"
    file.write_text("[governor]\nslow = 7\n")
    with pytest.raises(SettingsError, match=r"governor\.slow"):
        under_of(file, trace, paths)
    with pytest.raises(UsageError, match="There is no file"):
        under_of(tmp_path / "none.toml", trace, paths)
