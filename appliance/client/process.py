"""Is the process that wrote `daemon.json` still the one that has this pid?

A pid is used again after its process ended, so the start time is compared, too. On Linux it is read from
`/proc/<pid>/stat` (field 22, see proc(5)), elsewhere psutil is asked, imported only then.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TOLERANCE_S = 2.0
"""`btime` of /proc/stat has whole seconds and moves a little when the clock is corrected."""


def start_ticks(pid: int) -> int | None:
    """Linux: clock ticks from boot to the start of `pid`, None when it has ended or can't be read."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        after_name = stat.rpartition(")")[2].split()  # the name itself may hold spaces and parentheses
        return None if after_name[0] in "ZX" else int(after_name[19])
    except (OSError, ValueError, IndexError):
        return None


def start_time(pid: int) -> float | None:
    """Unix time at which `pid` started, None when there is no such process."""
    if not sys.platform.startswith("linux"):
        return _start_time_elsewhere(pid)
    ticks = start_ticks(pid)
    if ticks is None:
        return None
    try:
        lines = Path("/proc/stat").read_text(encoding="utf-8").splitlines()
        boot = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, ValueError, StopIteration):
        return None
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def _start_time_elsewhere(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None


def is_same(pid: int, recorded_time: float | None, recorded_ticks: int | None = None) -> bool:
    """True when `pid` runs and started when the record says.

    `recorded_ticks` (Linux) wins, since ticks do not move with the wall clock. Without any record a running
    process is believed.
    """
    if sys.platform.startswith("linux") and recorded_ticks is not None:
        return start_ticks(pid) == recorded_ticks
    started = start_time(pid)
    if started is None:
        return False
    return recorded_time is None or abs(started - recorded_time) <= TOLERANCE_S
