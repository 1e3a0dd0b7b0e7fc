"""Which installed builds run now: asked of the processes themselves, whoever started them."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from appliance.engines import pidfile
from appliance.engines.builds import records
from appliance.paths import Paths


def serving(paths: Paths) -> frozenset[str]:
    """The names of the builds that an engine of this user runs from. Blocks for a moment."""
    processes = [_from(pid) for pid in pidfile.running(paths)]
    found = set()
    for record in records.installed(paths):
        home = os.path.realpath(records.home(paths, record.name))
        if any(_below(home, place) for places in processes for place in places):
            found.add(record.name)
    return frozenset(found)


def _from(pid: int) -> tuple[str, ...]:
    """Where a process got its program and its packages from; nothing when it can't be read."""
    try:
        process = psutil.Process(pid)
        packages = process.environ().get("PYTHONPATH", "").split(os.pathsep)
        return (process.exe(), *(place for place in packages if place))
    except (psutil.Error, OSError):
        return ()


def _below(home: str, place: str) -> bool:
    return Path(os.path.realpath(place)).is_relative_to(home)
