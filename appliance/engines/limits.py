"""Seconds and counts of one engine's life; tests shrink them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """All of them."""

    stall_s: float = 180.0
    """A load without a new log line, CPU time or bytes read for this long hangs."""
    load_s: float = 1_800.0
    """A load may take this long even when it makes progress."""
    probe_s: float = 300.0
    """The first token; on a software device it takes half a minute."""
    stop_s: float = 8.0
    restarts: int = 3
    """Crashes within `window_s` that are answered by a restart."""
    window_s: float = 300.0
    backoff_s: tuple[float, ...] = (0.5, 2.0, 5.0)
    quiet_s: float = 15.0
    """Requests that are silent for so long are looked after: the engine's counters are read."""
    sign_s: float = 10.0
    """So long a look waits; an engine that is at work on a long batch answers after it."""
    hang_s: float | None = None
    """Silence after which a serving engine hangs; None: worked out from its batch and its speed."""
    doubt_s: float = 30.0
    """At least so long between two probes because of requests that failed."""
