"""Bars and trend lines as text, on fixed scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LEVELS = "▁▂▃▄▅▆▇"


@dataclass(frozen=True, slots=True)
class Spark:
    """A trend line between two fixed ends, so that a steady 95 % does not look like a storm."""

    low: float
    high: float

    def draw(self, values: Sequence[float | None], width: int) -> str:
        """The last `width` values, newest at the right. None is a gap."""
        shown = values[-width:] if width > 0 else ()
        return "".join(map(self._level, shown)).rjust(max(0, width))

    def _level(self, value: float | None) -> str:
        if value is None or math.isnan(value):
            return " "
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return _LEVELS[round(max(0.0, min(1.0, share)) * (len(_LEVELS) - 1))]


def bar(parts: Sequence[tuple[float, str]], total: float, width: int, rest: str = "░") -> str:
    """`width` cells in which each part has its share of `total`. A part above zero gets at least one cell.

    Cells are given by cumulated rounding, so that the parts never add up to more than the bar.
    """
    if width <= 0:
        return ""
    if total <= 0:
        return rest * width
    drawn = ""
    filled = 0.0
    for amount, glyph in parts:
        filled += max(0.0, amount)
        end = round(min(1.0, filled / total) * width)
        if amount > 0 and end == len(drawn) and end < width:
            end += 1
        drawn += glyph * (end - len(drawn))
    return drawn + rest * (width - len(drawn))
