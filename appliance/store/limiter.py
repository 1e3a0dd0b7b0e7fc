"""At most so many bytes per second, over all connections that share one bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BURST_S = 0.1
_PIECES_PER_S = 10
_LEAST = 1024


class Bucket:
    """`rate` in bytes per second; 0 = no limit. Any number of threads may take from it."""

    def __init__(self, rate: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = 0.0

    def piece(self, wanted: int) -> int:
        """How many bytes to read at once, so that a slow rate does not come in bursts."""
        return min(wanted, max(_LEAST, self._rate // _PIECES_PER_S)) if self._rate else wanted

    def take(self, n_bytes: int) -> float:
        """Count bytes that were read. Returns the seconds to wait before the next ones are."""
        if not self._rate:
            return 0.0
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now - _BURST_S) + n_bytes / self._rate
            return max(0.0, self._free_at - now)
