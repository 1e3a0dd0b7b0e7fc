"""What `doctor` says of loading: how fast the disk of the models is, and the last loads beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from appliance.engines.startup import disk_of
from appliance.errors import ApplianceError
from appliance.operations.finding import Finding
from appliance.operations.lessons.load_times import Known, LoadTime, RememberedLoads
from appliance.paths import Paths
from appliance.settings import Settings
from appliance.store import Store, Stored
from appliance.units import about, duration, size

SLOW_DISK = 200e6
"""Bytes per second; a hard disk gives less. A model of 8 GB takes 40 s at that speed."""
SLOW_LOAD_S = 10.0
"""Shorter loads are not worth a word."""
FAIR = 0.5
"""A cold load that took at most twice what reading takes is as it should be."""
_FAIR_SHOWN = 3
_SHORT_S = 2.0
"""Reading that takes less can't be what a load waits for."""
_OWN_WORK = 0.6
"""Share of a cold load that a warm one takes, from which on reading is not what it waits for."""


def loads(paths: Paths, config: Settings) -> list[Finding]:
    """Both checks. Blocks a little, raises nothing."""
    times = RememberedLoads(paths.load_times)
    try:
        here = Store(paths, downloads=config.downloads).recorded()
    except (ApplianceError, OSError):
        here = ()
    known = {stored.ref: (times.known(_sha256(stored)), _speed(times, stored.main)) for stored in here}
    disk = disk_of(_nearest(paths.models))
    return [_disk(disk.name if disk is not None else None, times.disk(disk)), *told(known)]


def told(known: Mapping[str, tuple[Known, float | None]]) -> list[Finding]:
    """The last cold load of each model, beside the read speed of its disk. Pure.

    All that were slow, and of the others the newest ones.
    """
    newest = sorted(known.items(), key=lambda item: -_at(item[1][0]))
    lines = [line for ref, (one, disk) in newest for line in _of_model(ref, one, disk)]
    fair = [line for line in lines if line.level == "ok"]
    return [*fair[:_FAIR_SHOWN], *(line for line in lines if line.level != "ok")]


def _disk(name: str | None, bytes_per_s: float | None) -> Finding:
    if bytes_per_s is None:
        detail = "not known yet: no load has read a model from it"
        return Finding("disk speed", "ok", f"{name}: {detail}" if name else detail)
    detail = f"{name} gives {size(int(bytes_per_s))}/s, as loads saw it"
    if bytes_per_s >= SLOW_DISK:
        return Finding("disk speed", "ok", detail)
    takes = about((8 << 30) / bytes_per_s)
    todo = "Keep the models on a faster disk: set APPLIANCE_HOME to a folder there."
    return Finding("disk speed", "note", f"{detail}: a model of 8 GiB takes {takes}", todo)


def _at(known: Known) -> float:
    return 0.0 if known.cold is None else known.cold.at


def _of_model(ref: str, known: Known, disk: float | None) -> Iterator[Finding]:
    cold = known.cold
    if cold is None or cold.cached is None:
        return
    if disk is None:
        return
    reading_s = cold.missing / disk
    share = min(1.0, reading_s / cold.seconds)
    line = f"the last cold load took {about(cold.seconds)}, {share:.2g} of what its disk gives"
    if share >= FAIR or cold.seconds < SLOW_LOAD_S:
        yield Finding(f"load {ref}", "ok", line)
        return
    why, todo = _why(cold, known.warm, reading_s)
    yield Finding(f"load {ref}", "note" if todo else "ok", f"{line}: {why}", todo)


def _why(cold: LoadTime, warm: LoadTime | None, reading_s: float) -> tuple[str, str | None]:
    if warm is not None and warm.seconds >= _OWN_WORK * cold.seconds:
        return f"from RAM it takes {about(warm.seconds)}, so the time is the engine's own", None
    if reading_s < _SHORT_S:
        return f"reading alone takes {duration(reading_s)}, so the time is the engine's own", None
    if not cold.preheated:
        return (
            "its files did not fit into free RAM and could not be read ahead of the engine",
            "Close programs that hold RAM, or take a smaller quant: `appliance models show MODEL`.",
        )
    return (
        "something else used the disk or the processor meanwhile",
        "`appliance down`, then `appliance up` when the machine is quiet: the next load is measured again.",
    )


def _speed(times: RememberedLoads, file: Path) -> float | None:
    return times.disk(disk_of(file))


def _sha256(stored: Stored) -> str:
    return next((file.sha256 for file in stored.files if file.path == stored.main), "")


def _nearest(folder: Path) -> Path:
    return next((path for path in (folder, *folder.parents) if path.exists()), folder)
