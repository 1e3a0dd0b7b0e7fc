"""A note on disk for each running engine, so that the next daemon can end what a killed one left behind.

The parent-death signal already ends engines on Linux. These files cover the rest: other systems, and wrapper
programs that start the real engine as a child.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
from pathlib import Path

import psutil

from appliance import processes
from appliance.engines.process import Child, end_stranger, unlink
from appliance.paths import Paths

log = logging.getLogger("appliance.engines")


def folder(paths: Paths) -> Path:
    """Where the notes lie."""
    return paths.state / "engines"


def write(paths: Paths, child: Child, socket: str | None) -> Path | None:
    """Note a started engine. None when the disk does not take it: the engine still runs."""
    note = {
        "pid": child.pid,
        "started": child.started,
        "ticks": child.ticks,
        "marker": child.marker,
        "socket": socket,
        "daemon": os.getpid(),
        "daemon_started": processes.start_time(os.getpid()),
        "daemon_ticks": processes.start_ticks(os.getpid()),
    }
    target = folder(paths) / f"{child.pid}.json"
    scratch = target.with_name(f".{child.pid}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(note, file)
        scratch.replace(target)
    except OSError as error:
        log.warning("No pid file for the engine: %s", error.strerror)
        return None
    return target


def running(paths: Paths) -> frozenset[int]:
    """The processes of the engines that run now, those included that a wrapper started."""
    found: set[int] = set()
    for file in folder(paths).glob("*.json"):
        try:
            note = json.loads(file.read_text())
            pid, started, ticks = int(note["pid"]), float(note["started"]), note.get("ticks")
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if processes.is_same(pid, started, ticks):
            found.add(pid)
            with contextlib.suppress(psutil.Error, OSError):
                found.update(child.pid for child in psutil.Process(pid).children(recursive=True))
    return frozenset(found)


def end_orphans(paths: Paths) -> tuple[int, ...]:
    """End engines whose daemon is gone; returns their pids. Files of a running daemon are left alone."""
    ended: list[int] = []
    for file in sorted(folder(paths).glob("*.json")):
        try:
            note = json.loads(file.read_text())
            pid, started, marker = int(note["pid"]), float(note["started"]), str(note["marker"])
            daemon, daemon_started = int(note["daemon"]), float(note["daemon_started"])
        except (OSError, ValueError, KeyError, TypeError):
            unlink(file)
            continue
        if processes.is_same(daemon, daemon_started, note.get("daemon_ticks")):
            continue
        if end_stranger(pid, started, note.get("ticks"), marker):
            log.warning("Ended engine %d, which an earlier daemon had left", pid)
            ended.append(pid)
        unlink(note.get("socket"))
        unlink(file)
    return tuple(ended)
