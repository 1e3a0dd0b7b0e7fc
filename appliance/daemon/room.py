"""What the other resident engines leave to a model that is about to be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Room:
    """Without other engines and without a limit of its own: all of the machine."""

    staying: frozenset[int] = frozenset()
    """Processes of engines that stay: what they hold is not free, their mapped files included."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Bytes that may be taken of a device, by name, or of `Host`."""


def least(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    """The smaller limit of each place that either names."""
    return {
        place: min(limits[place] for limits in (one, other) if place in limits) for place in {**one, **other}
    }
