"""Ends the sensor child when one call hangs, and leaves the call's name where the parent finds it.

Every NVML call is announced here by `hardware.nvml`, every other look by the sensor. The name of the call
that runs stands in a file that the parent gave, so that it outlives a crash inside a vendor's library. A
thread ends the process when the call outlives its deadline: a library that hangs can't be called back.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from appliance.hardware.troubles import NEEDED

TRACE_BYTES = 256
HUNG = 70
"""The exit code of a child that ended itself."""
_SLOW = NEEDED | {"nvmlShutdown"}
"""A sleeping GPU and a driver without persistence take seconds to begin."""


class Trace:
    """The call that runs now, in a small file shared with the parent. Nothing runs when it is empty."""

    def __init__(self, path: str | None) -> None:
        self._memory: mmap.mmap | None = None
        if path is not None:
            with contextlib.suppress(OSError, ValueError), Path(path).open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), TRACE_BYTES)
            with contextlib.suppress(OSError):  # nothing is left behind, however both end; Windows refuses
                Path(path).unlink()

    def write(self, what: str) -> None:
        if self._memory is not None:
            self._memory[:] = what.encode()[: TRACE_BYTES - 1].ljust(TRACE_BYTES, b"\0")

    def clear(self) -> None:
        if self._memory is not None:
            self._memory[0] = 0


class Watchdog:
    """The guard of all calls of the main thread."""

    def __init__(
        self,
        trace: Trace,
        *,
        deadline_s: float,
        slow_s: float,
        skip: Mapping[str, float] = {},
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trace = trace
        self._deadline_s, self._slow_s = deadline_s, slow_s
        self._clock = clock
        self._skip = {call: clock() + seconds for call, seconds in skip.items()}
        self._running: tuple[str, float, float] | None = None

    def allows(self, call: str, device: str = "") -> bool:
        """False for a call that is left out for now, on that device."""
        if not self._skip:
            return True
        until = self._skip.get(named(call, device))
        return until is None or self._clock() >= until

    def began(self, call: str, device: str = "") -> None:
        what, now = named(call, device), self._clock()
        self._trace.write(what)
        self._running = (what, now, now + (self._slow_s if call in _SLOW else self._deadline_s))

    def ended(self) -> None:
        self._running = None
        self._trace.clear()

    def skipped(self) -> tuple[str, ...]:
        """What is left out now."""
        now = self._clock()
        return tuple(call for call, until in self._skip.items() if now < until)

    def overdue(self) -> tuple[str, float] | None:
        """The call that runs for longer than it may, and for how many seconds."""
        running, now = self._running, self._clock()
        return (running[0], now - running[1]) if running is not None and now > running[2] else None

    def watch(self, out: int) -> None:
        """Start the thread that ends this process when a call is overdue."""
        threading.Thread(target=self._watch, args=(out,), name="watchdog", daemon=True).start()

    def _watch(self, out: int) -> None:
        while (late := self.overdue()) is None:
            time.sleep(min(0.5, self._deadline_s / 4))
        line = json.dumps({"hung": late[0], "seconds": round(late[1], 1)}) + "\n"
        # a parent that does not read could hold this thread up, too
        telling = threading.Thread(target=_tell, args=(out, line.encode()), daemon=True)
        telling.start()
        telling.join(0.5)
        os._exit(HUNG)


def named(call: str, device: str) -> str:
    """A call on a device in one word for the parent, the next child and people."""
    return f"{call} {device}" if device else call


def _tell(out: int, line: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(out, line)
