"""Written traces -> states and decisions. What is expected follows from the thermal rule:

* a sign of heat within 2 degrees of the threshold, or thermal bits in 3 of the last 5 samples;
* critical after 5 s at or above the threshold, until cool for 60 s;
* throttled when three speeds are under 0.8 of the usual one during a sign of heat;
* a better state 60 s after the last change at the earliest, and with five samples free of signs.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from appliance.operations.replay import Report, Under, read, replay
from appliance.operations.replay.values import Sampled
from appliance.settings import Governor, Settings

TRACES = Path(__file__).parent.parent / "data" / "traces"
DEFAULTS = Under.of(Settings(), "the defaults")

STATES = {
    # 70 degrees at 0 and one more each second: 92 at 22, 94 at 24, five seconds later it is critical
    "ramp": [(0, "cool"), (22, "warm"), (29, "critical")],
    # over the threshold for 3 s of the 5; free of signs from 27 on, but not before 20 + 60
    "spike": [(0, "cool"), (20, "warm"), (80, "cool")],
    # better at 10 + 60 at the earliest; the next five samples without a sign end at 84; hot again from 90 on
    "sawtooth": [(0, "cool"), (10, "warm"), (84, "cool"), (90, "warm")],
    # the third slow reply is at 15, so the sample after it; without sensors until two of three are quick
    "sensor_loss": [(0, "warm"), (16, "throttled"), (106, "unknown")],
    "power_cap": [(0, "cool")],
    # critical at 5; from 11 on it is far below: 11 + 60
    "cool_down": [(0, "warm"), (5, "critical"), (71, "cool")],
    "hot_start": [(0, "warm"), (5, "critical")],
    # the third bit is in the sample at 2
    "lying_sensor": [(0, "cool"), (2, "warm")],
    # three slow replies until 20; cool from 60 on, but throttled for 60 s
    "throttled": [(0, "warm"), (21, "throttled"), (81, "cool")],
}
REASONS = {
    "power_cap": {"r1": "local.ok"},
    "cool_down": {
        "before": "local.ok", "hot": "remote.thermal", "hot and local-only": "reject.thermal",
        "after": "local.ok",
    },
    "lying_sensor": {"line 6": "local.ok"},
    "throttled": {
        "warm": "local.ok", "slow": "remote.thermal", "slow and local-only": "local.pinned",
        "after": "local.ok",
    },
}  # fmt: skip


def played(name: str, under: Under = DEFAULTS) -> Report:
    file = TRACES / f"{name}.jsonl"
    return replay(read(file.read_bytes(), file.name), under)


def states(report: Report, device: str = "gpu") -> list[tuple[float, str]]:
    return [(moved.at, moved.after) for moved in report.moved if moved.what == device]


def test_every_trace_has_an_expectation() -> None:
    assert sorted(file.stem for file in TRACES.glob("*.jsonl")) == sorted(STATES)


@pytest.mark.parametrize("name", STATES)
def test_a_trace_gives_the_states_of_the_rule(name: str) -> None:
    report = played(name)
    assert states(report) == STATES[name]
    assert {verdict.request_id: verdict.now for verdict in report.verdicts} == REASONS.get(name, {})
    assert all(moved.why for moved in report.moved)


@pytest.mark.parametrize("name", STATES)
def test_the_time_in_the_states_is_the_time_of_the_trace(name: str) -> None:
    report = played(name)
    samples = [step.at for step in report.trace.steps if isinstance(step.what, Sampled)]
    assert sum(report.seconds["gpu"].values()) == pytest.approx(report.trace.ends - samples[0])
    changes = [*STATES[name], (report.trace.ends, "")]
    for at, state in ((at, state) for (at, state) in STATES[name]):
        spans = [later - begun for (begun, known), (later, _) in pairwise(changes) if known == state]
        assert report.seconds["gpu"].get(state, 0.0) == pytest.approx(sum(spans)), (at, state)


@pytest.mark.parametrize("name", STATES)
def test_a_replay_says_the_same_each_time(name: str) -> None:
    assert played(name).to_json() == played(name).to_json()


def test_all_requests_of_the_laptop_whose_sensor_lies_stay_here() -> None:
    report = played("lying_sensor")
    assert [verdict.now for verdict in report.verdicts] == ["local.ok"] * 20
    assert not [moved for moved in report.moved if moved.what == "batch work"]


def test_other_settings_give_other_states() -> None:
    patient = Under.of(Settings(governor=Governor(hold=30.0)), "patient")
    assert states(played("ramp", patient)) == [(0, "cool"), (22, "warm"), (54, "critical")]
    wide = Under.of(Settings(governor=Governor(throttle_margin=14.0)), "wide")
    assert states(played("ramp", wide)) == [(0, "cool"), (10, "warm"), (29, "critical")]
    slow = Under.of(Settings(governor=Governor(slow=0.2)), "slow")
    found = played("throttled", slow)
    assert states(found) == [(0, "warm"), (64, "cool")], "a quarter of the speed is allowed: never throttled"
    assert {verdict.now for verdict in found.verdicts} == {"local.ok", "local.pinned"}
    dwell = Under.of(Settings(governor=Governor(dwell=20.0)), "dwell")
    assert states(played("cool_down", dwell)) == [(0, "warm"), (5, "critical"), (31, "cool")]


def test_after_a_silence_longer_than_the_dwell_old_heat_is_forgotten() -> None:
    text = b"""
    {"at": 0, "until": 10, "kind": "sample", "device": "gpu", "headroom": -1}
    {"at": 100, "until": 110, "kind": "sample", "device": "gpu", "headroom": 1}
    """
    report = replay(read(text, "silence"), DEFAULTS)
    assert states(report) == [(0, "warm"), (5, "critical"), (100, "unknown"), (100, "warm")]
    assert report.seconds["gpu"] == {"warm": 15.0, "critical": 5.0, "not watched": 90.0}
    assert any("1 silence between samples, of 1 m 30 s" in note for note in report.notes)


def test_a_cpu_at_its_limit_is_no_alarm_until_it_is_critical() -> None:
    text = b"""
    {"at": 0, "until": 30, "kind": "sample", "device": "cpu", "temperature": 101, %s}
    {"at": 31, "until": 40, "kind": "sample", "device": "cpu", "temperature": 111, %s}
    """
    text = text.replace(b"%s", b'"slowdown_at": 100, "critical_at": 110')
    assert states(replay(read(text, "cpu"), DEFAULTS), "cpu") == [(0, "warm"), (36, "critical")]


def test_critical_on_one_device_counts_for_a_model_on_another_and_slow_does_not() -> None:
    text = b"""
    {"at": 0, "kind": "usual", "model": "m", "tokens_per_second": 40}
    {"at": 0, "kind": "remote", "name": "big", "ttft_s": 0.5, "finish_s": 4}
    {"at": 0, "kind": "model", "model": "here", "places": ["gpu:a"], "prefill_per_s": 100, "decode_per_s": 20}
    {"at": 0, "kind": "model", "model": "there", "places": ["gpu:b"], "decode_per_s": 20}
    {"at": 0, "until": 60, "kind": "sample", "device": "gpu:a", "headroom": 1}
    {"at": 0, "until": 29, "kind": "sample", "device": "gpu:b", "headroom": 40}
    {"at": 1, "until": 3, "kind": "speed", "model": "m", "tokens_per_second": 10, "places": ["gpu:a"]}
    {"at": 20, "kind": "request", "request_id": "1", "model": "here", "prompt_tokens": 100, "max_tokens": 200}
    {"at": 20, "kind": "request", "request_id": "2", "model": "there", "prompt_tokens": 99, "max_tokens": 9}
    {"at": 30, "until": 60, "kind": "sample", "device": "gpu:b", "headroom": -1}
    {"at": 50, "kind": "request", "request_id": "3", "model": "here", "prompt_tokens": 100, "wish": "local"}
    """
    report = replay(read(text, "two"), DEFAULTS)
    assert states(report, "a") == [(0, "warm"), (4, "throttled")]
    assert states(report, "b") == [(0, "cool"), (30, "warm"), (35, "critical")]
    assert [verdict.now for verdict in report.verdicts] == ["remote.thermal", "local.ok", "reject.thermal"]


def test_the_power_source_changes_only_when_it_stays() -> None:
    text = b"""
    {"at": 0, "kind": "battery", "plugged": true}
    {"at": 10, "kind": "battery", "plugged": false}
    {"at": 12, "kind": "battery", "plugged": true}
    {"at": 20, "until": 30, "kind": "battery", "plugged": false}
    """
    report = replay(read(text, "battery"), DEFAULTS)
    assert [(m.at, m.before, m.after) for m in report.moved] == [(0, "unknown", "ac"), (25, "ac", "battery")]


def test_what_a_battery_line_says_stands_until_the_next_one() -> None:
    """One line is enough: another source counts after the hold of 5 s; replugged before that it does not."""
    lines = [
        '{"at": 0, "kind": "battery", "plugged": true}',
        '{"at": 10, "kind": "battery", "plugged": false}',
        '{"at": 20, "kind": "battery", "plugged": true}',
        '{"at": 40, "kind": "battery", "plugged": false}',
        '{"at": 43, "kind": "battery", "plugged": true}',
        '{"at": 60, "kind": "request", "model": "m"}',
    ]
    report = replay(read("\n".join(lines).encode(), "written"), DEFAULTS)
    assert [(moved.at, moved.after) for moved in report.moved if moved.what == "power"] == [
        (0, "ac"), (15, "battery"), (25, "ac")]  # fmt: skip


PLACES = b"""
{"at": 0, "until": 40, "kind": "sample", "device": "gpu:0", "headroom": -1}
{"at": 0, "until": 40, "kind": "sample", "device": "cpu", "temperature": 50}
{"at": 1, "kind": "model", "model": "m", "places": [%s], "decode_per_s": 20}
"""


@pytest.mark.parametrize("place", ["gpu:0", "0", "cpu"])
def test_a_place_is_a_device_of_the_trace_with_or_without_its_kind(place: str) -> None:
    report = replay(read(PLACES % f'"{place}"'.encode(), "places"), DEFAULTS)
    assert not [note for note in report.notes if "place" in note]


def test_a_place_that_no_device_of_the_trace_has_is_told_by_its_line() -> None:
    speed = b'{"at": 2, "until": 9, "kind": "speed", "tokens_per_second": 9, "places": ["gpu:0", "GPU0"]}'
    (note,) = [n for n in read(PLACES % b'"cuda 0"' + speed, "places").notes if "place" in n]
    assert note == (
        "Line 4 names the place `cuda 0`, line 5 `GPU0`: no such device is sampled here "
        "(those that are: `0`, `cpu`), so nothing is known of its heat."
    )


def test_many_unknown_places_are_counted_and_none_is_told_where_no_device_is_sampled() -> None:
    model = b'{"at": 1, "kind": "model", "model": "m", "places": ["x"]}'
    notes = read(PLACES % b'"0"' + b"\n".join([model] * 9), "places").notes
    assert next(note for note in notes if "place" in note).startswith(
        "Line 5 names the place `x`, line 6 `x`, line 7 `x` and 6 lines more: no such device"
    )
    assert read(model, "bare").notes == ("It holds no samples: heat is unknown throughout.",)
