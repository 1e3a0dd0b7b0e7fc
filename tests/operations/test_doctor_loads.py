"""What `doctor` says of loads: slow ones by name, with what to do; the disk is blamed for its part only."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from appliance.engines.startup import disk_of
from appliance.operations import doctor_loads
from appliance.operations.doctor_loads import told
from appliance.operations.lessons.load_times import Known, LoadTime, RememberedLoads
from appliance.settings import Settings
from tests.engines.launches import paths_in

GB = 10**9
COLD = LoadTime(10.0, 8 * GB, 0.0, preheated=True, at=1.0)


def test_a_load_at_the_speed_of_its_disk_is_well() -> None:
    (line,) = told({"m:Q4": (Known(cold=COLD), GB)})
    assert (line.check, line.level, line.todo) == ("load m:Q4", "ok", None)
    assert "10 s, 0.8 of what its disk gives" in line.detail


def test_a_slow_load_is_named_with_what_to_do() -> None:
    slow = dataclasses.replace(COLD, seconds=40.0)
    (line,) = told({"m:Q4": (Known(cold=slow), GB)})
    assert line.level == "note"
    assert "0.2 of what" in line.detail
    assert line.todo
    (short,) = told({"m:Q4": (Known(cold=dataclasses.replace(slow, preheated=False)), GB)})
    assert "RAM" in short.detail
    assert short.todo
    assert short.todo != line.todo


def test_the_disk_is_not_blamed_for_the_engines_own_work() -> None:
    slow = dataclasses.replace(COLD, seconds=40.0)
    (line,) = told({"m:Q4": (Known(LoadTime(35.0, 8 * GB, 1.0), slow), GB)})
    assert (line.level, line.todo) == ("ok", None)
    assert "from RAM it takes 35 s" in line.detail
    small = LoadTime(30.0, GB // 2, 0.0)
    (line,) = told({"m:Q4": (Known(cold=small), GB)})
    assert (line.level, line.todo) == ("ok", None)
    assert "500 ms" in line.detail


def test_what_can_not_be_compared_is_not_mentioned() -> None:
    unknown = dataclasses.replace(COLD, cached=None)
    assert told({"a": (Known(), GB), "b": (Known(cold=COLD), None), "c": (Known(cold=unknown), GB)}) == []


def test_of_the_well_ones_the_newest_are_shown_and_of_the_slow_ones_all() -> None:
    well = {f"w{n}": (Known(cold=dataclasses.replace(COLD, at=float(n))), GB) for n in range(9)}
    slow = {f"s{n}": (Known(cold=dataclasses.replace(COLD, seconds=99.0, at=0.0)), GB) for n in range(5)}
    checks = [line.check for line in told({**well, **slow})]
    assert checks[:3] == ["load w8", "load w7", "load w6"]
    assert sorted(checks[3:]) == [f"load s{n}" for n in range(5)]


def test_a_disk_that_was_never_seen_is_not_called_slow_and_a_slow_one_is() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = paths_in(Path(folder))
        (line,) = doctor_loads.loads(paths, Settings())
        assert (line.check, line.level) == ("disk speed", "ok")
        assert "not known yet" in line.detail
        disk = disk_of(paths.models if paths.models.exists() else Path(folder))
        slow = dataclasses.replace(COLD, disk_bytes_per_s=90e6)
        RememberedLoads(paths.load_times).note("ab" * 32, "x 1", "cpu", slow, disk)
        (line,) = doctor_loads.loads(paths, Settings())
        assert line.level == "note"
        assert "85.8 MiB/s" in line.detail
        assert line.todo
