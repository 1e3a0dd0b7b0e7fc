"""A bad line of a trace is told by file and number, with what is wrong and what to write instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import UsageError
from appliance.operations.replay import Under, lines, read, replay, source
from appliance.operations.replay.ramps import spread
from appliance.operations.replay.values import Plugged, Sampled, Spoke
from appliance.settings import Settings

UNDER = Under.of(Settings(), "the defaults")
GOOD = '{"at": 0, "kind": "sample", "device": "gpu", "headroom": 30}'

BAD = {
    '{"at": 0, "kind": "sample"': ("no JSON", "one whole object on one line"),
    "[1, 2]": ("no JSON object", '{"at": 0'),
    '{"at": 0, "kind": "sample"},': ("no JSON", "no comma"),
    "{'at': 0}": ("no JSON", "double quotes"),
    '"word"': ("no JSON object", '{"at": 0'),
    '{"kind": "sample", "device": "gpu"}': ("`at` is missing", '"at": 1'),
    '{"at": "now", "kind": "sample", "device": "gpu"}': ("`at` is 'now'", '"at": 1'),
    '{"at": -1, "kind": "sample", "device": "gpu"}': ("`at` is -1", "at least 0"),
    '{"at": 1767225600000, "kind": "sample", "device": "gpu"}': ("`at`", "not milliseconds"),
    '{"at": NaN, "kind": "sample", "device": "gpu"}': ("NaN", "Leave the field out"),
    '{"at": 0, "kind": "sample", "device": "gpu", "headroom": Infinity}': ("Infinity", "Leave the field out"),
    '{"at": 0, "kind": "sample", "device": "gpu", "headroom": 1e999}': ("no finite", "Leave the field out"),
    '{"at": 0, "kind": "sample", "device": "gpu", "headroom": true}': ("`headroom` is True", "a number"),
    '{"at": 0, "kind": "sample", "device": "gpu", "temprature": 60}': ("'temprature'", "`temperature`"),
    '{"at": 0, "kind": "sample", "device": "gpu", "temperature": 4000}': ("4000", "from -100 to 250"),
    '{"at": 0, "kind": "sample"}': ("`device` is missing", '"device": "gpu"'),
    '{"at": 0, "kind": "sample", "device": "gpu", "reasons": ["SwTermal"]}': (
        "'SwTermal'", "SwThermalSlowdown"),
    '{"at": 0, "kind": "sample", "device": "gpu", "reasons": 1.5}': ("1.5", "whole number"),
    '{"at": 0, "at": 1, "kind": "sample", "device": "gpu"}': ("'at'", "Leave one"),
    '{"at": 0}': ("`kind` is missing", "sample"),
    '{"at": 0, "kind": "smaple"}': ("'smaple'", "`sample`"),
    '{"at": 0, "kind": "zzz"}': ("'zzz'", "one of: sample, speed"),
    '{"at": 0, "until": 9, "every": 0, "kind": "sample", "device": "gpu"}': ("`every` is 0", "above 0"),
    '{"at": 9, "until": 0, "kind": "sample", "device": "gpu"}': ("from 9 until 0", "at or after"),
    '{"at": 0, "every": 1, "kind": "sample", "device": "gpu"}': ("no end", '"until"'),
    '{"at": 0, "kind": "sample", "device": "gpu", "headroom": [9, 1]}': ("`headroom` runs", '"until"'),
    '{"at": 0, "until": 9, "kind": "sample", "device": "gpu", "headroom": [9]}': ("[9]", "two ends"),
    '{"at": 0, "until": 1e10, "every": 0.1, "kind": "sample", "device": "gpu"}': (
        "moments", "larger `every`"),
    '{"at": 0, "kind": "speed"}': ("`tokens_per_second` is missing", "tokens_per_second"),
    '{"at": 0, "kind": "battery", "plugged": "no"}': ("`plugged` is 'no'", "true or"),
    '{"at": 0, "kind": "request", "wish": "lokal"}': ("'lokal'", "auto, local, remote"),
    '{"at": 0, "kind": "decision", "reason": "local.ok"}': ("`features` is missing", "request"),
    '{"at": 0, "kind": "decision", "reason": "local.ok", "features": {"model": "m", "lane": "x"}}': (
        "`lane`", "interactive, batch"),
    '{"at": 0, "kind": "decision", "reason": "x", "features": {"model": "m"}, "view": {"max_wait_s": 8}}': (
        "of the View is missing", "Leave `view` out"),
    '{"at": 0, "kind": "sample", "device": {"a": 1}}': ("`device`", "a text"),
    '{"at": 0, "kind": "x", "a": ' + "[" * 50 + "]" * 50 + "}": ("nested", "plain"),
    '{"at": 0, "kind": "x", "a": ' + "[" * 20_000 + "]" * 20_000 + "}": ("nested", "plain"),
    '{"at": 0, "kind": "' + "x" * 70_000 + '"}': ("70,", "under 65,536"),
}  # fmt: skip


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:60])
def test_a_bad_line_is_named_with_what_to_write_instead(line: str) -> None:
    wrong, instead = BAD[line]
    with pytest.raises(UsageError) as caught:
        read(f"# a comment\n\n{GOOD}\n{line}\n{GOOD}\n".encode(), "trace.jsonl")
    error = caught.value
    assert error.message == "Line 4 of trace.jsonl can't be used."
    assert wrong in (error.cause or "")
    assert instead in (error.hint or "")
    assert len(str(error)) < 900
    assert error.exit_code == 2


def test_the_other_bad_lines_are_told_by_their_numbers() -> None:
    with pytest.raises(UsageError) as caught:
        read("\n".join([GOOD, *["{}"] * 9]).encode(), "x")
    assert caught.value.message.startswith("Line 2 of")
    assert (caught.value.cause or "").endswith("Bad are also: 3, 4, 5, 6, 7 and 3 more.")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "holds no line"),
        (b"# nothing\n\n", "holds no line"),
        (b"PK\x03\x04....", "not a bundle"),
        (b"\x1f\x8b\x08...", "unpack it first"),
        (b"SQLite format 3\0....", "--last"),
        (b"\x7fELF\x02\0\0\0", "binary"),
        (b'{"at": 0, "kind": "\xff\xfe"}', "not UTF-8"),
    ],
)
def test_what_is_no_trace_is_refused_by_what_it_is(data: bytes, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(data, "x")
    assert told in str(caught.value)


def test_huge_traces_are_refused_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(source, "MOST_BYTES", 1_000)
    monkeypatch.setattr(lines, "MOST_LINES", 10)
    file = tmp_path / "x.jsonl"
    file.write_bytes(b"x" * 2_000)
    with pytest.raises(UsageError, match="too large"):
        source.of_file(file)
    with pytest.raises(UsageError, match="more than 10 lines"):
        read(b"\n" * 11, "x")


def test_two_clocks_in_one_file_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        read(f'{GOOD}\n{{"at": 1767225600, "kind": "sample", "device": "gpu"}}'.encode(), "x")
    assert "from line 1 to line 2" in caught.value.message
    assert "either from 0 or in Unix seconds" in (caught.value.hint or "")


def test_lines_out_of_order_are_sorted_and_it_is_said() -> None:
    rows = [{"at": 1767225600 + at, "kind": "sample", "device": "gpu", "headroom": at} for at in (3, 1, 2)]
    trace = read("\r\n".join(json.dumps(row) for row in rows).encode("utf-8-sig"), "x")
    assert [step.at - 1767225600 for step in trace.steps] == [1, 2, 3]
    assert trace.notes == ("2 lines stand before an earlier moment; all are taken in the order of time.",)


def test_a_ramp_runs_from_its_first_value_to_its_last() -> None:
    line = {"at": 5, "until": 9, "every": 2, "kind": "sample", "temperature": [70, 90], "slowdown_at": 94}
    found = list(spread(line))
    assert [(at, raw["temperature"], raw["slowdown_at"]) for at, raw in found] == [
        (5, 70, 94), (7, 80, 94), (9, 90, 94)]  # fmt: skip
    assert [at for at, _ in spread({"at": 0, "until": 5, "every": 2})] == [0, 2, 4]


def test_a_written_sample_knows_its_headroom_and_its_reasons_by_name() -> None:
    line = (
        '{"at": 0, "kind": "sample", "device": "gpu:a", "temperature": 60, "slowdown_at": 94, "reasons": %s}'
    )
    names = read((line % '["swpowercap", "HwThermalSlowdown"]').encode(), "x").steps[0].what
    assert isinstance(names, Sampled)
    assert (names.device, names.reading.headroom, names.reading.reasons) == ("a", 34.0, 0x44)
    mask = read((line % "68").encode(), "x").steps[0].what
    assert isinstance(mask, Sampled)
    assert mask.reading == names.reading


def test_a_recorded_line_of_a_newer_version_loses_only_what_is_new() -> None:
    row: dict[str, Any] = {
        "at": 100.0, "kind": "request", "request_id": "r", "route": "local", "status": 200, "plan": "p",
        "served_model": "m:Q4", "tokens_in": 300, "tokens_out": 200, "tokens_per_second": 31.0,
        "total_ms": 7000.0, "power": "ac", "streams": 2, "new": {"a": 1},
    }  # fmt: skip
    machine = {"at": 100.0, "kind": "sample", "device": "machine", "plugged": False, "cpu_percent": 7.5}
    trace = read(f"{json.dumps(row)}\n{json.dumps(machine)}".encode(), "x")
    assert trace.steps[0].what == Plugged(False)
    spoke = trace.steps[1]
    assert spoke.at == 107.0, "the speed is known when the reply is over"
    assert spoke.what == Spoke("m:Q4", "p", 31.0, 2, 500, "ac")


@pytest.mark.parametrize("change", [{"route": "remote"}, {"status": 502}, {"tokens_out": 7}, {"plan": None}])
def test_a_reply_that_says_nothing_about_this_machine_is_no_speed(change: dict[str, Any]) -> None:
    row = {
        "at": 1, "kind": "request", "request_id": "r", "route": "local", "status": 200, "plan": "p",
        "tokens_out": 200, "tokens_per_second": 31.0,
    } | change  # fmt: skip
    trace = read(json.dumps(row).encode(), "x")
    assert not any(isinstance(step.what, Spoke) for step in trace.steps)


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_NAMES = (
    "at until every device temperature headroom slowdown_at reasons slowed_ns tokens_per_second streams "
    "model plugged wish lane prompt_tokens max_tokens name up ttft_s state slots running features view "
    "reason given moment event route status total_ms power places"
)
NAMES = st.sampled_from(_NAMES.split())
_KINDS = "sample speed usual request battery remote model event decision"
KINDS = st.sampled_from(_KINDS.split())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(KINDS, st.dictionaries(NAMES, VALUES, max_size=6)), min_size=1, max_size=4))
def test_whatever_stands_in_a_line_it_is_read_or_refused_in_words(
    rows: list[tuple[str, dict[str, Any]]],
) -> None:
    for number, (_, row) in enumerate(rows):
        row.setdefault("at", number)
        if isinstance(row.get("until"), (int, float)):
            row["until"] = 5
    text = "\n".join(json.dumps({**row, "kind": kind}) for kind, row in rows)
    refused: UsageError | None = None
    try:
        json.dumps(replay(read(text.encode(), "x"), UNDER).to_json(), allow_nan=False)
    except UsageError as error:
        refused = error
    assert refused is None or (refused.hint and refused.message)


def test_the_example_of_the_documentation_is_a_trace() -> None:
    text = (Path(__file__).parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")
    example = text.split("```jsonl\n")[1].split("```")[0]
    report = replay(read(example.encode(), "docs/replay.md"), UNDER)
    states = [(moved.at, moved.after) for moved in report.moved if moved.what == "gpu"]
    # 92 degrees at 79.2 s and the third slow reply at 80; 94 at 86.4
    assert states == [(0, "cool"), (80, "warm"), (81, "throttled")]
    assert [verdict.now for verdict in report.verdicts] == ["local.ok"]
