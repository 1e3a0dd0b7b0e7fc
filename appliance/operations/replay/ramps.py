"""A written line that stands for many: `"at": 5, "until": 90, "every": 1`; values may run from a to b."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from appliance.operations.replay.fields import BadLine, Fields

MOST_POINTS = 500_000
"""That one line, and a whole trace, may stand for."""
LATEST = 1e11
"""Unix seconds far beyond any date; a larger `at` is in milliseconds."""
_RAMPS = frozenset(
    {
        "temperature", "headroom", "margin", "slowdown_at", "tokens_per_second", "prompt_tokens", "slowed_ns",
        "running", "waiting", "predicted_wait_s", "ttft_s", "finish_s", "power", "clock", "fan",
        "utilisation",
    }
)  # fmt: skip
"""Fields that may be `[from, to]` in a line with `until`."""
_WHOLE = frozenset({"prompt_tokens", "slowed_ns", "running", "waiting"})
_OWN = ("at", "until", "every")


def spread(raw: Mapping[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
    """(at, the line's other fields) for each moment that the line stands for. Raises BadLine."""
    fields = Fields(raw)
    at = fields.needed("at", 0)
    if at > LATEST:
        raise BadLine(f"`at` is {at:g}", "Write seconds, not milliseconds.")
    until = fields.number("until", 0, LATEST)
    every = fields.number("every")
    rest = {name: value for name, value in raw.items() if name not in _OWN}
    if until is None:
        if every is not None:
            raise BadLine("`every` has no end", 'Add one: "until": 60.')
        if found := next((name for name in rest if _is_ramp(name, rest[name])), None):
            raise BadLine(
                f"`{found}` runs from one value to another", 'Say how long: "until": 60, "every": 1.'
            )
        yield at, rest
        return
    every = 1.0 if every is None else every
    if until < at or every <= 0:
        wrong = f"it lasts from {at:g} until {until:g}" if until < at else f"`every` is {every:g}"
        raise BadLine(wrong, '`until` is a time at or after `at`, and `every` is above 0: "every": 1.')
    count = int((until - at) / every + 1e-9)
    if count >= MOST_POINTS:
        raise BadLine(f"it stands for {count:,} moments", "Write a larger `every`, or a shorter time.")
    for step in range(count + 1):
        part = step * every / (until - at) if until > at else 0.0
        yield round(at + step * every, 6), {name: _at(name, value, part) for name, value in rest.items()}


def _is_ramp(name: str, value: Any) -> bool:
    return name in _RAMPS and isinstance(value, list)


def _at(name: str, value: Any, part: float) -> Any:
    """The value of a field after this part of the time."""
    if not _is_ramp(name, value):
        return value
    if len(value) != 2 or any(isinstance(end, bool) or not isinstance(end, (int, float)) for end in value):
        raise BadLine(f"`{name}` is {value!r}"[:80], f'Write its two ends: "{name}": [70, 95].')
    found = value[0] + (value[1] - value[0]) * part
    return round(found) if name in _WHOLE else round(found, 6)
