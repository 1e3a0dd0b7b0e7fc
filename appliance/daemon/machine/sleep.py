"""Was the machine suspended? Told by two clocks of which only one goes on meanwhile. Pure but for `read`.

| system  | goes on                    | stands still                             |
| ------- | -------------------------- | ---------------------------------------- |
| Linux   | CLOCK_BOOTTIME             | CLOCK_MONOTONIC                          |
| macOS   | CLOCK_MONOTONIC            | CLOCK_UPTIME_RAW                         |
| Windows | the wall clock             | the time that was asked to pass          |

On Windows `time.monotonic` goes on in sleep, and the wall clock may be set: only a large jump counts there.
`keep_alive` counts as `time.monotonic` does: on Linux and macOS a suspended hour is no hour without use.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

SLEPT_S = 1.0
"""Two clocks of a kernel differ by less than that when nothing happened."""
_KERNEL_CLOCKS = {
    "linux": ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"),
    "darwin": ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW"),
}
JUMPED_S = 60.0
"""A wall clock is set by less now and then, and a busy machine wakes nobody for a while."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Both clocks at one moment, in seconds of their own."""

    on: float
    """Goes on while the machine is suspended."""
    still: float | None
    """Stands still; None: this system has none, and the time that was asked to pass takes its place."""


def read() -> Clocks:
    """The clocks now."""
    on, still = _KERNEL_CLOCKS.get(sys.platform, ("", ""))
    if not hasattr(time, on) or not hasattr(time, still):
        return Clocks(time.time(), None)
    return Clocks(time.clock_gettime(getattr(time, on)), time.clock_gettime(getattr(time, still)))


def slept_s(before: Clocks, now: Clocks, asked_s: float) -> float:
    """Seconds that the machine was suspended between two looks; 0: it was not.

    `asked_s`: how long the pause between them was meant to be.
    """
    went_on = now.on - before.on
    exact = before.still is not None and now.still is not None
    stood = now.still - before.still if before.still is not None and now.still is not None else asked_s
    gap = went_on - stood
    return gap if gap >= (SLEPT_S if exact else JUMPED_S) else 0.0
