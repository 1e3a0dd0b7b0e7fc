"""Which cores count: physical ones of the fast kind, as far as this process may use them."""

from __future__ import annotations

from collections.abc import Mapping

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.hardware import cgroup
from appliance.hardware.cores import Cores, cores, cpu_list
from appliance.hardware.sysfs import Roots
from tests.hardware.folders import files

FREE = cgroup.Limits()


def machine(roots: Roots, siblings: Mapping[int, str], **figures: Mapping[int, int]) -> frozenset[int]:
    """CPUs with their sibling lists and further figures by file name; `__` stands for `/`."""
    folder = roots.sys / "devices" / "system" / "cpu"
    files(folder, online="0-99", cpufreq="a name that only looks like a CPU")
    for number, text in siblings.items():
        own = {name: values[number] for name, values in figures.items()}
        files(folder / f"cpu{number}", topology__thread_siblings_list=text, **own)
    return frozenset(siblings)


def alder_lake(roots: Roots) -> frozenset[int]:
    """6 performance cores with two threads each, 4 efficiency cores."""
    pairs = {n: f"{n // 2 * 2}-{n // 2 * 2 + 1}" for n in range(12)}
    every = machine(roots, pairs | {n: str(n) for n in range(12, 16)})
    files(roots.sys / "devices", cpu_core__cpus="0-11", cpu_atom__cpus="12-15")
    return every


def test_an_intel_hybrid_counts_performance_cores_once(roots: Roots, many_cpus: None) -> None:
    assert cores(FREE, roots, allowed=alder_lake(roots), system="linux") == Cores(10, 16, 6)


def test_affinity_to_a_part_of_the_cpus_is_kept_to(roots: Roots, many_cpus: None) -> None:
    alder_lake(roots)
    some = frozenset({0, 1, 2, 12, 13})
    assert cores(FREE, roots, allowed=some, system="linux") == Cores(4, 5, 2)


def test_a_process_kept_to_the_slow_cores_uses_those(roots: Roots, many_cpus: None) -> None:
    alder_lake(roots)
    found = cores(FREE, roots, allowed=frozenset({13, 14}), system="linux")
    assert found == Cores(2, 2, 2)


def test_a_container_quota_is_the_most(roots: Roots, many_cpus: None) -> None:
    every = alder_lake(roots)
    assert cores(cgroup.Limits(cpus=3), roots, allowed=every, system="linux") == Cores(3, 3, 3)


def test_second_threads_of_a_core_are_no_cores(roots: Roots, many_cpus: None) -> None:
    every = machine(roots, {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"})
    assert cores(FREE, roots, allowed=every, system="linux") == Cores(4, 8, 4)


def test_big_and_little_cores_are_told_by_capacity(roots: Roots, many_cpus: None) -> None:
    capacity = {0: 250, 1: 250, 2: 250, 3: 250, 4: 800, 5: 800, 6: 800, 7: 1024}
    every = machine(roots, {n: str(n) for n in capacity}, cpu_capacity=capacity)
    assert cores(FREE, roots, allowed=every, system="linux").performance == 4


def test_equal_capacity_leaves_none_out(roots: Roots, many_cpus: None) -> None:
    every = machine(roots, {n: str(n) for n in range(8)}, cpu_capacity=dict.fromkeys(range(8), 1024))
    assert cores(FREE, roots, allowed=every, system="linux").performance == 8


@pytest.mark.parametrize(("maker", "fast"), [("GenuineIntel", 4), ("AuthenticAMD", 8)])
def test_clocks_tell_slow_cores_apart_but_for_compact_ones(
    roots: Roots, many_cpus: None, maker: str, fast: int
) -> None:
    clocks = {n: 5_000_000 if n < 4 else 3_300_000 for n in range(8)}
    every = machine(roots, {n: str(n) for n in clocks}, cpufreq__cpuinfo_max_freq=clocks)
    files(roots.proc, cpuinfo=f"vendor_id\t: {maker}")
    assert cores(FREE, roots, allowed=every, system="linux").performance == fast


def test_a_favoured_core_with_a_little_more_clock_leaves_none_out(roots: Roots, many_cpus: None) -> None:
    clocks = {0: 5_200_000, 1: 5_200_000, 2: 4_800_000, 3: 4_800_000}
    every = machine(roots, {n: str(n) for n in clocks}, cpufreq__cpuinfo_max_freq=clocks)
    assert cores(FREE, roots, allowed=every, system="linux").performance == 4


def test_where_the_kernel_tells_no_topology_nothing_is_made_up(roots: Roots) -> None:
    found = cores(FREE, roots, allowed=frozenset({0, 1}), system="linux")
    assert found.performance is None
    assert found.physical is not None


def test_a_mac_names_its_performance_cores(roots: Roots, many_cpus: None) -> None:
    answers = {"hw.perflevel0.physicalcpu": "8"}
    found = cores(FREE, roots, system="darwin", sysctl=answers.get, allowed=frozenset(range(12)))
    assert found.performance == 8
    intel = cores(FREE, roots, system="darwin", sysctl=lambda _: None, allowed=frozenset(range(12)))
    assert (intel.performance, intel.physical) == (None, 12)


def test_elsewhere_all_physical_cores_are_known_and_the_fast_ones_are_not(
    roots: Roots, many_cpus: None
) -> None:
    found = cores(FREE, roots, system="win32", allowed=frozenset(range(16)))
    assert (found.physical, found.performance) == (16, None)


@pytest.mark.parametrize("text", [None, "", "a-b", "-3", "5-", "1,,2", "0-99999999999", "3-1x"])
def test_what_is_no_list_of_cpus_is_none(text: str | None) -> None:
    assert cpu_list(text) == frozenset()


@given(st.sets(st.integers(0, 500)))
def test_a_list_of_cpus_reads_back(numbers: set[int]) -> None:
    assert cpu_list(",".join(map(str, sorted(numbers)))) == numbers


def test_ranges_of_cpus_are_whole() -> None:
    assert cpu_list("4-7,9") == {4, 5, 6, 7, 9}


@pytest.fixture
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil sees a machine with more CPUs than any of the tests', as it does beside another /sys."""
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 64)
