"""The text of a trace as objects with their line numbers: one JSON object per line, within limits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from appliance.errors import UsageError
from appliance.operations.replay.fields import BadLine
from appliance.text import clean_line
from appliance.units import size

MOST_BYTES = 64 << 20
MOST_LINE_BYTES = 64 << 10
MOST_LINES = 500_000
MOST_NESTED = 12
_TOLD = 5
"""Bad lines that are told by number beside the first one."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the trace."""

    number: int
    raw: dict[str, Any]


class Complaints:
    """The bad lines of one trace: the first one in words, the others by their numbers."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: list[tuple[int, BadLine]] = []

    def add(self, number: int, problem: BadLine) -> None:
        self._found.append((number, problem))

    def tell(self) -> None:
        """Raise UsageError when there was any."""
        if not self._found:
            return
        number, first = self._found[0]
        others = [str(other) for other, _ in self._found[1:]]
        more = ""
        if others:
            rest = f" and {len(others) - _TOLD} more" if len(others) > _TOLD else ""
            more = f" Bad are also: {', '.join(others[:_TOLD])}{rest}."
        raise UsageError(
            f"Line {number} of {self._name} can't be used.",
            cause=f"{first.wrong[0].upper()}{first.wrong[1:]}.{more}",
            hint=first.instead,
        )


def lines_of(data: bytes, name: str, complaints: Complaints) -> Iterator[Line]:
    """The objects in their order. Blank lines and those that begin with `#` are passed over."""
    for number, text in enumerate(_text(data, name).split("\n"), 1):
        stripped = text.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            yield Line(number, _object(stripped))
        except BadLine as problem:
            complaints.add(number, problem)


def _text(data: bytes, name: str) -> str:
    if len(data) > MOST_BYTES:
        raise UsageError(
            f"{name} is too large for a trace: {size(len(data))}.",
            cause=f"At most {size(MOST_BYTES)} are read.",
            hint="Cut out the minutes that matter: each line stands for itself.",
        )
    kind = _other_kind(data)
    try:
        if kind is None:
            text = data.decode("utf-8-sig")
        else:
            raise ValueError(kind)
    except ValueError as error:
        what = str(error) if kind else "It is not UTF-8 text."
        raise UsageError(
            f"{name} is no trace.",
            cause=what,
            hint="A trace is text with one JSON object per line; docs/replay.md shows one.",
        ) from None
    if text.count("\n") > MOST_LINES:
        raise UsageError(
            f"{name} has more than {MOST_LINES:,} lines.", hint="Cut out the minutes that matter."
        )
    return text


def _other_kind(data: bytes) -> str | None:
    """What it is instead of text, by its first bytes; None for text."""
    if data.startswith(b"PK\x03\x04"):
        return "It is a zip archive, but not a bundle of `appliance doctor --bundle`."
    if data.startswith(b"\x1f\x8b"):
        return "It is compressed: unpack it first (gunzip)."
    if data.startswith(b"SQLite format 3"):
        return "It is a database: `appliance replay --last 1h` reads this machine's journal."
    return "It holds binary data." if b"\0" in data[:MOST_LINE_BYTES] else None


def _object(text: str) -> dict[str, Any]:
    if len(text) > MOST_LINE_BYTES:
        raise BadLine(f"it has {len(text):,} characters", f"Keep each line under {MOST_LINE_BYTES:,}.")
    try:
        found = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except BadLine:
        raise
    except RecursionError:
        raise BadLine("it is nested too deeply", "Write a plain object.") from None
    except ValueError as error:
        raise BadLine(f"it is no JSON ({error})", _remedy(text)) from None
    if not isinstance(found, dict):
        raise BadLine("it is no JSON object", 'Write one: {"at": 0, "kind": "sample", ...}.')
    if _depth(found) > MOST_NESTED:
        raise BadLine("it is nested too deeply", "Write a plain object.")
    return found


def _remedy(text: str) -> str:
    if text.startswith(("[", "]")) or text.endswith(("},", "],")):
        return "Write no list and no comma at the end: one object per line, each in its own braces."
    if "'" in text and '"' not in text:
        return 'JSON has double quotes: {"at": 0}.'
    return 'Write one whole object on one line: {"at": 0, "kind": "sample", ...}.'


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadLine(f"the field {clean_line(repr(twice), 60)} stands there twice", "Leave one of them.")
    return found


def _no_constant(word: str) -> NoReturn:
    raise BadLine(f"{word} is no value", "Leave the field out where the value is unknown.")


def _depth(value: Any) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, level = waiting.pop()
        deepest = max(deepest, level)
        inner: Iterable[Any] = ()
        if isinstance(one, dict):
            inner = one.values()
        elif isinstance(one, list):
            inner = one
        waiting += [(each, level + 1) for each in inner if isinstance(each, (dict, list))]
    return deepest
