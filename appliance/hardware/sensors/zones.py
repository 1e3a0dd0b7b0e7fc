"""Temperature of a Jetson, whose GPU is on no bus and whose NVML tells none: the kernel's thermal zones.

`tj-thermal` is the hottest point of the chip, `gpu-thermal` (`GPU-therm` before JetPack 5) the GPU. A
`passive` trip point is where the kernel lowers clocks, a `critical` one where it shuts the system down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from appliance.hardware.sensors import believed
from appliance.hardware.sensors.values import GpuSample
from appliance.hardware.sysfs import Roots, folders, read_int, read_text

_ZONES = ("tj-thermal", "gpu-thermal", "gpu-therm")


def completed(rows: Sequence[GpuSample], roots: Roots) -> list[GpuSample]:
    """The rows, with the chip's temperature for a device that shares the RAM and tells none of its own."""
    blind = [row for row in rows if row.temperature is None and row.memory_source == "ram"]
    if len(blind) != 1:
        return list(rows)
    found = _zone(roots)
    if found is None or (celsius := believed.milli_degrees(read_int(found / "temp"))) is None:
        return list(rows)
    slowdown, shutdown = _trip(found, "passive"), _trip(found, "critical")
    seen = replace(
        blind[0],
        temperature=celsius,
        slowdown_at=slowdown,
        shutdown_at=shutdown,
        headroom=None if slowdown is None else slowdown - celsius,
    )
    return [seen if row is blind[0] else row for row in rows]


def _zone(roots: Roots) -> Path | None:
    kinds = {
        (read_text(zone / "type") or "").lower(): zone
        for zone in folders(roots.sys / "class" / "thermal", "thermal_zone*")
    }
    return next((kinds[name] for name in _ZONES if name in kinds), None)


def _trip(zone: Path, kind: str) -> float | None:
    """The lowest trip point of this kind."""
    found = [
        celsius
        for file in folders(zone, "trip_point_*_type")
        if read_text(file) == kind
        and (celsius := believed.milli_degrees(read_int(file.with_name(file.name.replace("_type", "_temp")))))
        is not None
    ]
    return min(found, default=None)
