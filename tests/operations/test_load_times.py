"""How long loads took, what is kept of it, and what it says of the next one."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines.startup import Disk
from appliance.operations.lessons import load_file
from appliance.operations.lessons.load_times import (
    WARM,
    Estimate,
    Known,
    LoadTime,
    RememberedLoads,
    load_estimate,
)

GB = 10**9
SSD = Disk("/dev/nvme0n1p2 /", "/dev/nvme0n1p2")
SHA, OTHER = "ab" * 32, "cd" * 32


def load(seconds: float, cached: float | None, n_bytes: int = 8 * GB, disk: float | None = None) -> LoadTime:
    return LoadTime(seconds, n_bytes, cached, disk_bytes_per_s=disk)


def seconds(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.seconds


WARM_LOAD, COLD_LOAD = load(4.0, 1.0), load(12.0, 0.0)
times = st.floats(0.05, 3_600)
fractions = st.floats(0, 1)
speeds = st.none() | st.floats(1e6, 1e11)
knowns = st.builds(
    Known,
    st.none() | st.builds(load, times, st.floats(WARM, 1)),
    st.none() | st.builds(load, times, st.none() | st.floats(0, WARM, exclude_max=True)),
)


@pytest.mark.parametrize(
    ("cached", "disk", "known", "expected"),
    [
        (1.0, None, Known(WARM_LOAD), (4.0, "seen")),
        (1.0, GB, Known(WARM_LOAD, COLD_LOAD), (4.0, "seen")),
        (0.0, None, Known(WARM_LOAD, COLD_LOAD), (12.0, "seen")),
        (0.5, None, Known(WARM_LOAD, COLD_LOAD), (8.0, "seen")),
        (0.0, GB, Known(WARM_LOAD), (12.0, "computed")),
        (0.0, GB, Known(None, COLD_LOAD), (12.0, "seen")),
        (0.5, GB, Known(None, COLD_LOAD), (8.0, "computed")),
        (1.0, GB / 10, Known(None, COLD_LOAD), (6.0, "computed")),
        (0.0, 2 * GB, Known(), (7.0, "rough")),
    ],
)
def test_an_estimate_says_where_it_comes_from(
    cached: float, disk: float | None, known: Known, expected: tuple[float, str]
) -> None:
    found = load_estimate(8 * GB, cached, disk, known)
    assert found is not None
    assert found.how == expected[1]
    assert found.seconds == pytest.approx(expected[0])


def test_nothing_is_made_up() -> None:
    assert load_estimate(8 * GB, 0.0, None, Known()) is None
    assert load_estimate(8 * GB, None, None, Known()) is None
    assert load_estimate(8 * GB, 0.0, None, Known(WARM_LOAD)) is None, "a warm load says nothing of a disk"


def test_what_is_not_known_to_be_in_ram_counts_as_missing() -> None:
    assert load_estimate(8 * GB, None, GB, Known()) == load_estimate(8 * GB, 0.0, GB, Known())


@given(st.integers(0, 10**12), st.none() | fractions, speeds, knowns)
def test_an_estimate_is_a_time(size: int, cached: float | None, disk: float | None, known: Known) -> None:
    found = load_estimate(size, cached, disk, known)
    if found is not None:
        assert 0 < found.seconds < float("inf")
        assert found.text.startswith(("usually ", "about "))
    assert found is not None or disk is None, "a disk's speed is enough for a rough figure"


@given(st.integers(1, 10**12), fractions, fractions, speeds, knowns)
def test_more_in_ram_never_takes_longer(
    size: int, one: float, other: float, disk: float | None, known: Known
) -> None:
    less, more = sorted((one, other))
    with_less, with_more = load_estimate(size, less, disk, known), load_estimate(size, more, disk, known)
    if with_less is not None and with_more is not None and with_less.how == with_more.how:
        assert with_more.seconds <= with_less.seconds * 1.000001


def test_a_nearly_warm_load_is_not_blown_up_to_a_cold_one() -> None:
    known = Known(load(4.0, 1.0), load(4.5, 0.94))
    assert seconds(load_estimate(8 * GB, 0.0, GB, known)) == pytest.approx(12.0)


def test_a_load_is_remembered_by_model_build_and_place(tmp_path: Path) -> None:
    times = RememberedLoads(tmp_path / "state" / "load_times.json", clock=iter(range(1, 9)).__next__)
    times.note(SHA, "x 1", "cpu", load(4.0, 0.99))
    times.note(SHA, "x 1", "cpu", load(12.0, 0.2, disk=GB), SSD)
    times.note(SHA, "v 1", "gpu", load(2.0, 1.0))
    known = times.known(SHA, "x 1", "cpu")
    assert known.warm is not None
    assert known.cold is not None
    assert (known.warm.seconds, known.cold.seconds, known.cold.cached) == (4.0, 12.0, 0.2)
    newest = times.known(SHA)
    assert newest.cold is None
    assert newest.warm is not None
    assert newest.warm.seconds == 2.0
    assert times.known(SHA, "never", "cpu") == newest
    assert times.known(OTHER) == Known()
    assert times.disk(SSD) == GB
    assert times.disk(None) is times.disk(Disk("other", "other")) is None


@pytest.mark.skipif(sys.platform == "win32", reason="modes are of POSIX")
def test_the_file_is_private_and_holds_no_more_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_file, "LOADS", 3)
    monkeypatch.setattr(load_file, "DISKS", 2)
    file = tmp_path / "load_times.json"
    times = RememberedLoads(file, clock=iter(range(100)).__next__)
    for number in range(6):
        disk = Disk(f"/dev/sd{number} /", f"/dev/sd{number}")
        times.note(f"{number:064x}", "x 1", "cpu", load(1.0 + number, 0.0, disk=GB), disk)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    known = load_file.read(file)
    assert sorted(one.cold.seconds for one in known.loads.values() if one.cold) == [4.0, 5.0, 6.0]
    assert [one.name for one in known.disks.values()] == ["/dev/sd4", "/dev/sd5"]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b'{"v": 7}', b'{"v": 1, "loads": {"k": {"model": "m", "warm": {"seconds": -1}}}}',
        b'{"v": 1, "disks": {"k": {"name": "d", "bytes_per_s": "NaN"}}}', b'{"v": 1, "more": 1}',
        b"\xff\xfe\x00", b"[" * 100_000, b" " * (load_file.MAX_BYTES + 1),
    ],
    ids=["empty", "half", "list", "newer", "negative", "nan", "foreign", "bytes", "deep", "large"],
)  # fmt: skip
def test_a_broken_file_is_begun_anew_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    file = tmp_path / "load_times.json"
    file.write_bytes(content)
    times = RememberedLoads(file)
    assert times.known(SHA) == Known()
    assert "begins anew" in caplog.text
    times.note(SHA, "x 1", "cpu", load(4.0, 1.0))
    assert times.known(SHA).warm is not None
    json.loads(file.read_bytes())


def test_a_folder_in_its_place_is_no_reason_to_fail_a_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "load_times.json"
    file.mkdir()
    times = RememberedLoads(file)
    times.note(SHA, "x 1", "cpu", load(4.0, 1.0))
    assert times.known(SHA) == Known()
    assert "can't be kept" in caplog.text


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "load_times.json"
    one, other = RememberedLoads(file), RememberedLoads(file)
    one.note(SHA, "x 1", "cpu", load(4.0, 1.0))
    other.note(OTHER, "x 1", "cpu", load(5.0, 1.0))
    assert one.known(OTHER).warm is not None
    assert other.known(SHA).warm is not None
