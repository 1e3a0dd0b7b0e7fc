"""Is a process that was noted down still the one that has this pid? And one process at a time.

A pid is used again after its process ended, so the start time belongs to it. On Linux it is read from
`/proc/<pid>/stat` (field 22, see proc(5)); elsewhere psutil is asked, imported only then. Note down
`start_time` and `start_ticks`, and give both to `is_same`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_LOCK_POLL_S = 0.01
TOLERANCE_S = 2.0
"""`btime` of /proc/stat has whole seconds and moves a little when the clock is corrected."""


def start_ticks(pid: int) -> int | None:
    """Linux: clock ticks from boot to the start of `pid`, which no change of the wall clock moves.

    None when it has ended (a zombie has), can't be read, or on another system.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        after_name = stat.rpartition(")")[2].split()  # the name itself may hold spaces and parentheses
        return None if after_name[0] in "ZX" else int(after_name[19])
    except (OSError, ValueError, IndexError):
        return None


def start_time(pid: int) -> float | None:
    """Unix time at which `pid` started; None when it has ended or can't be read."""
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


def is_same(pid: int, started: float | None, ticks: int | None = None, *, hidden: bool = False) -> bool:
    """True when `pid` runs and started when the note says.

    `ticks` wins where it can be read. Without any start in the note a running process is believed. `hidden`
    is the answer for a process that exists and may not be looked at (another user's, under `hidepid`).
    """
    if pid <= 0:
        return False
    if sys.platform.startswith("linux") and ticks is not None:
        now = start_ticks(pid)
        return now == ticks if now is not None else hidden and _is_hidden(pid)
    time = start_time(pid)
    if time is None:
        return hidden and _is_hidden(pid)
    return started is None or abs(time - started) <= TOLERANCE_S


def memory_kills() -> int | None:
    """Linux: how many programs the kernel has ended since boot because memory ran out; None elsewhere."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _start_time_elsewhere(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None


def _is_hidden(pid: int) -> bool:
    if not sys.platform.startswith("linux"):
        return _is_hidden_elsewhere(pid)
    try:
        os.kill(pid, 0)  # sends nothing
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return False  # ours, so it would be readable if it lived


def _is_hidden_elsewhere(pid: int) -> bool:
    import psutil

    try:
        psutil.Process(pid).create_time()
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return False
    return False


def locked_within(handle: int, limit_s: float) -> bool:
    """Lock an open file for this process alone; False when another one held it all the while.

    The lock ends with the handle or the process. Windows has no such lock here, and is taken to have it.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    until = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_LOCK_POLL_S)
        else:
            return True
