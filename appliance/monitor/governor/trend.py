"""Where the temperature goes: seconds until the slowdown threshold at the rate of now. Pure.

A machine that heats up does so ever more slowly, so a straight line is too early, never too late; only what
it says about the next moments is used, and only to let batch work wait.
"""

from __future__ import annotations

from dataclasses import dataclass

SPAN_S = 30.0
"""The line goes through the samples of so long."""
ENOUGH_S = 8.0
ENOUGH = 4
RISEN = 5.0
"""Degrees over the span; sensors tell whole degrees, and a device that moves up and down by a few is at its
usual temperature."""
_MOST = 64


@dataclass(frozen=True, slots=True)
class Trend:
    """(when, degrees to the threshold) of the last samples."""

    points: tuple[tuple[float, float], ...] = ()


def look(before: Trend, headroom: float | None, now: float) -> Trend:
    """After one more sample; one without a headroom adds nothing."""
    kept = tuple(point for point in before.points if 0 <= now - point[0] <= SPAN_S)
    return Trend(kept if headroom is None else (*kept, (now, headroom))[-_MOST:])


def rate(trend: Trend) -> float | None:
    """Degrees a second by which the device gets warmer; None with too few samples.

    The lower of what all samples say and what the newer half of them says: what has turned rises no more.
    """
    whole = _slope(trend.points)
    newest = trend.points[-1][0] if trend.points else 0.0
    newer = _slope(tuple(point for point in trend.points if newest - point[0] <= SPAN_S / 2))
    return None if whole is None else whole if newer is None else min(whole, newer)


def _slope(points: tuple[tuple[float, float], ...]) -> float | None:
    """Of the straight line with the least squares."""
    if len(points) < ENOUGH or points[-1][0] - points[0][0] < ENOUGH_S:
        return None
    at = sum(when for when, _ in points) / len(points)
    mean = sum(left for _, left in points) / len(points)
    over = sum((when - at) ** 2 for when, _ in points)
    return -sum((when - at) * (left - mean) for when, left in points) / over


def slowdown_in_s(trend: Trend) -> float | None:
    """Seconds until the threshold; None where it is not on its way there: at or above it, steady, or moving
    up and down.
    """
    if not trend.points:
        return None
    left, rises = trend.points[-1][1], rate(trend)
    risen = max(headroom for _, headroom in trend.points) - left
    if left <= 0 or risen < RISEN or rises is None or rises <= 0:
        return None
    return left / rises
