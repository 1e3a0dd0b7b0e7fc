"""A Jetson's temperature from folders like /sys/class/thermal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.hardware.sensors import GpuSample, zones
from appliance.hardware.sysfs import Roots
from tests.hardware.folders import files

THOR = GpuSample("GPU-1", 0, "NVIDIA Thor", "cuda", total=128 << 30, memory_source="ram")


def zone(roots: Roots, number: int, **contents: object) -> None:
    files(roots.sys / "class" / "thermal" / f"thermal_zone{number}", **contents)


def test_the_hottest_point_of_the_chip_with_its_trip_points(roots: Roots) -> None:
    zone(roots, 0, type="cpu-thermal", temp=50000)
    zone(roots, 1, type="gpu-thermal", temp=61000)
    zone(
        roots, 2, type="tj-thermal", temp=63500, trip_point_0_type="active", trip_point_0_temp=51000,
        trip_point_1_type="passive", trip_point_1_temp=99000, trip_point_2_type="critical",
        trip_point_2_temp=104500,
    )  # fmt: skip
    assert zones.completed([THOR], roots) == [
        replace(THOR, temperature=63.5, slowdown_at=99.0, shutdown_at=104.5, headroom=35.5)
    ]


def test_older_names_and_no_trip_points(roots: Roots) -> None:
    zone(roots, 0, type="GPU-therm", temp=40000)
    (row,) = zones.completed([THOR], roots)
    assert (row.temperature, row.slowdown_at, row.headroom) == (40.0, None, None)


@pytest.mark.parametrize("temp", ["", "-256000", "0", "nonsense", "200000"])
def test_nonsense_stays_unknown(roots: Roots, temp: str) -> None:
    zone(roots, 0, type="tj-thermal", temp=temp)
    assert zones.completed([THOR], roots) == [THOR]


def test_a_device_that_tells_its_own_temperature_keeps_it(roots: Roots) -> None:
    zone(roots, 0, type="tj-thermal", temp=63500)
    spark = replace(THOR, temperature=45.0)
    card = replace(THOR, memory_source="driver")
    assert zones.completed([spark, card], roots) == [spark, card]
    assert zones.completed([THOR, replace(THOR, id="GPU-2")], roots) == [THOR, replace(THOR, id="GPU-2")]
