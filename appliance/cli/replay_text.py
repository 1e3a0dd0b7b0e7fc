"""The text of `replay`: what changed and why, and what would have been decided differently."""

from __future__ import annotations

import time
from collections.abc import Mapping

from appliance.cli.output import cell, say, say_wrapped, show, table
from appliance.operations.replay import Report, Under
from appliance.operations.replay.reading import UNIX
from appliance.operations.replay.values import Moved, Verdict
from appliance.text import clean_line
from appliance.units import duration

MOST_LINES = 200
"""Of each part; `--json` has all."""


def print_report(report: Report, under: Under) -> None:
    """Everything for a person."""
    trace = report.trace
    say(f"Trace     {cell(trace.name)}: {trace.lines:,} lines, {duration(trace.ends - trace.begins)}")
    rule = under.rule
    say(
        f"Settings  {cell(under.name)}: {under.policy}, slow {rule.slow:g}, margin {rule.throttle_margin:g}, "
        f"hold {duration(rule.hold)}, dwell {duration(rule.dwell)}, battery {under.battery}"
    )
    _changes(report)
    _seconds("Time in each state", report.seconds)
    _seconds("As it was recorded", report.recorded)
    _decisions(report)
    for note in report.notes:
        say()
        say_wrapped(note)


def when(at: float, begins: float) -> str:
    """`1:07.5` of a trace that begins at 0, else the time of day."""
    if begins >= UNIX:
        return time.strftime("%H:%M:%S", time.localtime(at))
    minutes, seconds = divmod(at, 60)
    text = f"{seconds:04.1f}" if round(seconds % 1, 1) else f"{seconds:02.0f}"
    return f"{minutes:.0f}:{text}"


def _changes(report: Report) -> None:
    say()
    if not report.moved:
        say("No state changed.")
        return
    say("Changes")
    for moved in report.moved[:MOST_LINES]:
        say_wrapped(_change(moved), f"  {when(moved.at, report.trace.begins):>8}  ")
    _rest(len(report.moved))


def _change(moved: Moved) -> str:
    return f"{cell(moved.what)}: {moved.before} → {moved.after}: {cell_long(moved.why)}"


def _seconds(title: str, seconds: Mapping[str, Mapping[str, float]]) -> None:
    if not seconds:
        return
    say()
    say(title)
    for device, states in seconds.items():
        whole = sum(states.values()) or 1.0
        parts = [f"{state} {duration(spent)} ({spent / whole:.0%})" for state, spent in states.items()]
        say_wrapped(", ".join(parts), f"  {cell(device)}: ")


def _decisions(report: Report) -> None:
    if not report.verdicts:
        return
    recorded = [one for one in report.verdicts if one.before is not None]
    say()
    if recorded:
        say(f"Decisions: {len(report.differ)} of {len(recorded)} that have a reason would differ")
        for verdict in report.differ[:MOST_LINES]:
            _differs(verdict, report.trace.begins)
        _rest(len(report.differ))
    written = [one for one in report.verdicts if one.before is None]
    if written:
        say("Requests")
        for verdict in written[:MOST_LINES]:
            say_wrapped(
                f"{cell(verdict.request_id)} ({cell(verdict.model)}): {verdict.now}: "
                f"{cell_long(verdict.now_detail)}",
                f"  {when(verdict.at, report.trace.begins):>8}  ",
            )
        _rest(len(written))
    _reasons(report)


def _differs(verdict: Verdict, begins: float) -> None:
    lead = f"  {when(verdict.at, begins):>8}  "
    moment = "" if verdict.moment == "first" else f", {verdict.moment}"
    say_wrapped(
        f"{cell(verdict.request_id)} ({cell(verdict.model)}{moment}): {verdict.before} → {verdict.now}", lead
    )
    if verdict.before_detail:
        say_wrapped(f"was: {cell_long(verdict.before_detail)}", " " * len(lead))
    say_wrapped(f"now: {cell_long(verdict.now_detail)}", " " * len(lead))


def _reasons(report: Report) -> None:
    counts = report.to_json()["reasons"]
    say()
    made = table("reason", "before", "now", right=("before", "now"))
    for reason in sorted({*counts["before"], *counts["now"]}):
        before = counts["before"].get(reason, 0) if counts["before"] else "n/a"
        made.add_row(reason, str(before), str(counts["now"].get(reason, 0)))
    show(made)


def _rest(count: int) -> None:
    if count > MOST_LINES:
        say(f"  … {count - MOST_LINES:,} more: --json has all of them.")


def cell_long(text: str) -> str:
    """A sentence of foreign origin, on one line."""
    return clean_line(text, 400)
