"""Pure: when requests are a reason to keep the machine awake."""

from __future__ import annotations

from dataclasses import dataclass, field

AFTER_S = 1.0
"""So long requests run before the machine is held; short ones come and go without it."""
LINGER_S = 5.0
"""So long the machine is held after the last one: the next request of a script finds it held."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a demand."""

    after_s: float = AFTER_S
    linger_s: float = LINGER_S


@dataclass(slots=True)
class Demand:
    """How many requests are here, and since when without a pause.

    Requests that follow each other within `after_s` count as one: a script of many short ones is work, too.
    """

    pace: Pace = field(default_factory=Pace)
    running: int = 0
    _since: float = 0.0
    _last: float = float("-inf")

    def count(self, running: int, now: float) -> None:
        """There are so many now."""
        if running and not self.running and now - self._last > self.pace.after_s:
            self._since = now
        if self.running and not running:
            self._last = now
        self.running = running

    def wanted(self, now: float, *, held: bool) -> bool:
        """Whether the machine is to be held."""
        if self.running:
            return held or now >= self._since + self.pace.after_s
        return held and now < self._last + self.pace.linger_s

    def due(self, now: float, *, held: bool) -> float | None:
        """In how many seconds that changes by time alone; None: it does not."""
        if self.running:
            return None if held else max(0.0, self._since + self.pace.after_s - now)
        return max(0.0, self._last + self.pace.linger_s - now) if held else None
