"""Reading ahead: all of it, in order, one reader at a time, and an end within a block."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.engines.startup import Preheat, cached, preheat
from tests.engines.startup.files import END_S, MIB, Gate, drop, file_of

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs to know what is in RAM")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return file_of(tmp_path_factory.mktemp("model") / "large", 130 * MIB)


@pytest.fixture
def cold(large: Path) -> Path:
    drop(large)
    return large


@pytest.fixture
def gate(cold: Path) -> Iterator[Gate]:
    """A preheat that has its turn and has read nothing yet."""
    made = Gate([cold])
    made.start()
    assert made.reached.wait(END_S)
    yield made
    made.stop()
    made.go_on.set()
    assert made.join(END_S)


def test_everything_is_in_ram_afterwards_and_the_disk_was_seen(cold: Path, tmp_path: Path) -> None:
    small = file_of(tmp_path / "projector", 3 * MIB + 17)
    drop(small)
    run = Preheat([cold, small])
    run.start()
    assert run.join(END_S)
    found = cached([cold, small])
    assert found is not None
    assert found.missing <= found.n_bytes // 1000  # the kernel may drop a page or two at any time
    report = run.report
    assert report.whole
    assert report.n_bytes + report.passed_over == cold.stat().st_size + small.stat().st_size
    assert len(report.speeds) == 2, "the two full windows; what is left over is too short to be timed"
    assert report.cold_bytes == 128 * MIB
    assert report.disk_bytes_per_s in report.speeds


def test_what_is_in_ram_is_passed_over_and_says_nothing_of_the_disk(large: Path) -> None:
    large.read_bytes()
    run = Preheat([large])
    run.start()
    assert run.join(END_S)
    assert run.report.passed_over >= preheat.WINDOW, "a system that takes back pages may have taken some"
    assert run.report.n_bytes + run.report.passed_over == large.stat().st_size
    assert run.report.speeds == ()
    assert run.report.whole


def test_a_stop_ends_it_in_the_middle(gate: Gate, cold: Path) -> None:
    gate.stop()
    gate.go_on.set()
    assert gate.join(END_S)
    assert gate.report.n_bytes == 0
    assert not gate.report.whole
    found = cached([cold])
    assert found is not None
    assert found.fraction < 0.2


def test_a_second_reader_waits_for_the_first_and_can_be_stopped_meanwhile(gate: Gate, tmp_path: Path) -> None:
    other = file_of(tmp_path / "other", 2 * MIB)
    drop(other)
    waiting, stopped = Preheat([other]), Preheat([other])
    waiting.start()
    stopped.start()
    stopped.stop()
    assert stopped.join(END_S)
    assert not waiting.join(0.1)
    assert stopped.report.n_bytes == waiting.report.n_bytes == 0
    gate.go_on.set()
    assert waiting.join(END_S)
    assert waiting.report.whole
    assert gate.report.whole, "the first one was at its end before"


def test_a_file_that_is_gone_ends_it_with_a_reason_and_lets_the_next_one_read(tmp_path: Path) -> None:
    lost = Preheat([tmp_path / "missing"])
    lost.start()
    assert lost.join(END_S)
    assert lost.report.problem is not None
    assert not lost.report.whole
    after = Preheat([file_of(tmp_path / "here", MIB)])
    after.start()
    assert after.join(END_S)
    assert after.report.whole


def test_a_file_that_is_cut_while_it_is_read_ends_the_reading(gate: Gate, cold: Path, tmp_path: Path) -> None:
    path = file_of(tmp_path / "cut", 4 * MIB)
    drop(path)
    run = Gate([path])
    gate.go_on.set()
    assert gate.join(END_S)
    run.start()
    assert run.reached.wait(END_S)
    with path.open("r+b") as file:
        file.truncate(MIB)
    run.go_on.set()
    assert run.join(END_S)
    assert run.report.n_bytes == MIB


def test_a_busy_moment_does_not_make_the_disk_slow() -> None:
    report = preheat.Report(cold_bytes=5 << 26, speeds=(1e9, 1.1e9, 0.01e9, 0.9e9, 0.02e9))
    assert report.disk_bytes_per_s == 1e9
    assert preheat.Report(cold_bytes=1 << 20, speeds=(1e9,)).disk_bytes_per_s is None
