"""Whether a noted process still is the one with its pid."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from appliance import processes

LINUX = sys.platform.startswith("linux")
FREE_PID = (1 << 22) + 1
"""Above every pid that Linux gives."""


def test_this_process_is_itself_and_its_start_agrees_with_psutil() -> None:
    started, ticks = processes.start_time(os.getpid()), processes.start_ticks(os.getpid())
    assert started == pytest.approx(psutil.Process().create_time(), abs=processes.TOLERANCE_S)
    assert processes.is_same(os.getpid(), started, ticks)
    assert processes.is_same(os.getpid(), started)
    assert processes.is_same(os.getpid(), None)


def test_a_pid_that_was_given_again_is_another_process() -> None:
    started = processes.start_time(os.getpid())
    assert started is not None
    assert not processes.is_same(os.getpid(), started - 3)
    assert not processes.is_same(os.getpid(), started + 3)


@pytest.mark.skipif(not LINUX, reason="ticks are read from /proc")
def test_ticks_win_over_a_wall_clock_that_was_set() -> None:
    ticks = processes.start_ticks(os.getpid())
    assert ticks is not None
    assert processes.is_same(os.getpid(), 1.0, ticks)
    assert not processes.is_same(os.getpid(), processes.start_time(os.getpid()), ticks + 1)


def test_one_that_ended_is_gone_also_while_nobody_has_waited_for_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started, ticks = processes.start_time(child.pid), processes.start_ticks(child.pid)
    assert processes.is_same(child.pid, started, ticks)
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but not yet reaped
    try:
        for note in ((started, ticks), (started, None), (None, None)):
            assert not processes.is_same(child.pid, *note, hidden=True)
    finally:
        child.wait()
    assert not processes.is_same(child.pid, started, ticks, hidden=True)


@pytest.mark.parametrize("pid", [0, -1, FREE_PID, 1 << 80])
def test_what_is_no_process_never_is_the_same(pid: int) -> None:
    assert not processes.is_same(pid, None)
    assert not processes.is_same(pid, 1.0, 1, hidden=True)


@pytest.mark.skipif(not LINUX, reason="hidepid is Linux's")
def test_one_that_hides_is_what_the_caller_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int, number: int) -> None:
        assert (pid, number) == (FREE_PID, 0)
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    for ticks in (None, 1):
        assert processes.is_same(FREE_PID, 1.0, ticks, hidden=True)
        assert not processes.is_same(FREE_PID, 1.0, ticks)
