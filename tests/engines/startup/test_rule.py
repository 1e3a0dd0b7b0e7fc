"""Read ahead only what fits; not mapped only what would be read twice."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines.startup import Cached, disk_of, may_preheat, mode_for, smoothed, spare_ram, where_of
from appliance.engines.startup.disks import place
from appliance.engines.startup.rule import MARGIN, WORTH
from appliance.engines.startup.spare_ram import mapped
from appliance.hardware.sysfs import Roots
from tests.engines.launches import plan as plan_of

GIB = 1 << 30
sizes = st.integers(0, 200 * GIB)
spares = st.none() | st.integers(0, 512 * GIB)


@st.composite
def looks(draw: st.DrawFn) -> Cached | None:
    n_bytes = draw(sizes)
    return draw(st.none() | st.integers(0, n_bytes).map(lambda resident: Cached(n_bytes, resident)))


@given(looks(), sizes, spares)
def test_nothing_is_read_ahead_that_would_push_something_out(
    found: Cached | None, n_bytes: int, spare: int | None
) -> None:
    n_bytes = n_bytes if found is None else found.n_bytes
    missing = n_bytes if found is None else found.missing
    ahead = may_preheat(n_bytes, found, spare)
    assert ahead.reason
    if ahead.preheat:
        assert spare is not None
        assert WORTH <= missing <= spare - MARGIN
    elif missing >= WORTH and spare is not None:
        assert missing > spare - MARGIN


@given(looks(), sizes, spares)
def test_only_what_goes_to_the_gpu_as_a_whole_and_does_not_fit_is_not_mapped(
    found: Cached | None, n_bytes: int, spare: int | None
) -> None:
    n_bytes = n_bytes if found is None else found.n_bytes
    for where in ("cpu", "partial"):
        assert mode_for(where, n_bytes, found, spare).mode == "auto"
    on_gpu = mode_for("gpu", n_bytes, found, spare)
    assert on_gpu.reason
    if on_gpu.mode == "none":
        assert not may_preheat(n_bytes, found, spare).preheat, "what is read ahead is there to be mapped"


def test_a_plan_says_where_its_weights_go() -> None:
    plan = plan_of()
    assert where_of(plan) == "cpu"
    device = dataclasses.replace(plan.host, name="CUDA0")
    whole = dataclasses.replace(plan, devices=(device,), gpu_layers=plan.n_layer + 1)
    assert where_of(whole) == "gpu"
    assert where_of(dataclasses.replace(whole, cpu_moe=1)) == "partial"
    assert where_of(dataclasses.replace(whole, gpu_layers=plan.n_layer)) == "partial"


class Mount(NamedTuple):
    device: str
    mountpoint: str


MOUNTS = (
    Mount("/dev/vda", "/"), Mount("proc", "/proc"), Mount("/dev/sdb1", "/data"), Mount("nas:/m", "/data/nas"),
    Mount("tmpfs", "/run"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/me/model", "/dev/vda"),
        ("/data/model", "/dev/sdb1"),
        ("/data/nas/model", "nas:/m"),
        ("/database/model", "/dev/vda"),
        ("/data", "/dev/sdb1"),
        ("/run/model", "/run"),
    ],
)
def test_a_file_lies_on_the_nearest_mount(path: str, name: str) -> None:
    found = place(path, MOUNTS)
    assert found is not None
    assert found.name == name


def test_this_very_file_lies_somewhere() -> None:
    mine, other = disk_of(Path(__file__)), disk_of(Path("/proc/self/status"))
    assert mine is not None
    assert mine != other


@given(st.none() | st.floats(1e6, 1e11), st.floats(allow_nan=False, allow_infinity=False))
def test_a_smoothed_speed_lies_between_the_two_and_misreadings_change_nothing(
    old: float | None, new: float
) -> None:
    found = smoothed(old, new)
    if not 1e6 <= new <= 100e9:
        assert found == old
    elif old is None:
        assert found == new
    else:
        assert found is not None
        assert min(old, new) * 0.999 <= found <= max(old, new) * 1.001


def test_a_slow_moment_counts_for_less_than_a_fast_one() -> None:
    up, down = smoothed(1e9, 2e9), smoothed(2e9, 1e9)
    assert up is not None
    assert down is not None
    assert up - 1e9 > 2e9 - down


def test_mapped_weights_are_no_spare_ram(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMapped:  4096 kB\nMapping: 7 kB\n", encoding="utf-8")
    roots = Roots(proc=tmp_path)
    assert mapped(roots) == 4096 * 1024
    assert mapped(Roots(proc=tmp_path / "none")) == 0
    free, less = spare_ram(Roots(proc=tmp_path / "none")), spare_ram()
    assert free is not None
    assert less is not None
    assert less < free
