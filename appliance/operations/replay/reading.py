"""The bytes of a trace -> its steps in the order of time. Pure; errors name file and line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from appliance.errors import UsageError
from appliance.operations.replay.fields import BadLine
from appliance.operations.replay.lines import Complaints, Line, lines_of
from appliance.operations.replay.ramps import MOST_POINTS, spread
from appliance.operations.replay.understand import understand
from appliance.operations.replay.values import Model, Sampled, Spoke, Step, Trace
from appliance.text import clean_line
from appliance.units import duration

SILENT_S = 15.0
"""Samples further apart leave a time of which nothing can be said."""
UNIX = 1e8
"""Times below it count from 0, later ones are Unix seconds."""
_WIDEST_S = 400 * 86_400.0
_MOST_NAMED = 3
"""Lines and devices of one remark."""


def read(data: bytes, name: str) -> Trace:
    """All of it. Raises UsageError, which names the first bad line and what to write instead."""
    complaints = Complaints(name)
    steps: list[Step] = []
    lines = disordered = 0
    latest = float("-inf")
    for line in lines_of(data, name, complaints):
        lines += 1
        try:
            found = _steps(line, MOST_POINTS - len(steps))
        except BadLine as problem:
            complaints.add(line.number, problem)
            continue
        if found:
            disordered += found[0].at < latest
            latest = max(latest, found[0].at)
        steps += found
    complaints.tell()
    if not steps:
        raise UsageError(
            f"{name} holds no line of a trace.",
            hint='Write one object per line, like {"at": 0, "kind": "sample", "device": "gpu"}.',
        )
    steps.sort(key=lambda step: step.at)
    _refuse_two_clocks(steps, name)
    return Trace(name, tuple(steps), lines, _notes(steps, disordered))


def _steps(line: Line, room: int) -> list[Step]:
    found: list[Step] = []
    for at, raw in spread(line.raw):
        for after, what in understand(raw, line.number):
            found.append(Step(at + after, what, line.number))
        if len(found) > room:
            raise BadLine(
                f"the trace stands for more than {MOST_POINTS:,} moments", "Write a larger `every`, or less."
            )
    return found


def _refuse_two_clocks(steps: list[Step], name: str) -> None:
    """Times from 0 and Unix times in one file can't be put on one line."""
    first, last = steps[0], steps[-1]
    if last.at - first.at <= _WIDEST_S:
        return
    raise UsageError(
        f"{name} spans {duration(last.at - first.at)}, from line {first.line} to line {last.line}.",
        cause=f"At most {_WIDEST_S / 86_400:.0f} days are replayed as one.",
        hint="Write every `at` either from 0 or in Unix seconds, not both in one file.",
    )


def _notes(steps: list[Step], disordered: int) -> tuple[str, ...]:
    notes = []
    if disordered and steps[0].at >= UNIX:  # a written trace is in the order that its writer thinks in
        lines = "1 line stands" if disordered == 1 else f"{disordered:,} lines stand"
        notes.append(f"{lines} before an earlier moment; all are taken in the order of time.")
    times = [step.at for step in steps if isinstance(step.what, Sampled)]
    means = sum(isinstance(step.what, Sampled) and step.what.step > 1 for step in steps)
    gaps = [later - at for at, later in pairwise(times) if later - at > SILENT_S]
    if gaps and not means:
        many = f"{len(gaps)} silences between samples, the longest of {duration(max(gaps))}"
        told = many if len(gaps) > 1 else f"1 silence between samples, of {duration(gaps[0])}"
        notes.append(f"{told}: nothing is known of the heat then.")
    if means:
        notes.append(
            f"{means:,} samples are means of a minute: what was shorter can't be seen in them, "
            "and `critical` can't be proven from them."
        )
    if not times:
        notes.append("It holds no samples: heat is unknown throughout.")
    return (*notes, *_nowhere(steps))


def _nowhere(steps: list[Step]) -> Iterator[str]:
    """Places that are no device of the trace: a misspelt one would be passed over."""
    devices = {step.what.device for step in steps if isinstance(step.what, Sampled)}
    wrong: dict[int, str] = {}
    for step in steps:
        places = step.what.places if isinstance(step.what, (Model, Spoke)) else None
        for place in sorted((places or frozenset()) - devices):
            wrong.setdefault(step.line, place)
    if not devices or not wrong:
        return
    first, *others = sorted(wrong)[:_MOST_NAMED]
    named = [f"Line {first} names the place {_quoted(wrong[first])}"]
    named += [f"line {line} {_quoted(wrong[line])}" for line in others]
    more = len(wrong) - len(named)
    rest = "" if not more else f" and {more:,} line{'s' * (more > 1)} more"
    there = [_quoted(one) for one in sorted(devices)[:_MOST_NAMED]]
    there += ["others"] * (len(devices) > _MOST_NAMED)
    yield (
        f"{', '.join(named)}{rest}: no such device is sampled here (those that are: {', '.join(there)}), "
        "so nothing is known of its heat."
    )


def _quoted(name: str) -> str:
    return f"`{clean_line(name, 60)}`"
