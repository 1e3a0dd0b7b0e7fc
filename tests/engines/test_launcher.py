"""The launcher where no parent-death signal exists: it stays, and a pipe tells it that the daemon is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from appliance.engines.discovery import CHILDREN
from appliance.engines.process import _launcher, _parent_death_signal

LAUNCHER = str(CHILDREN / "launcher.py")
SAY_AND_SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def watched(script: str) -> tuple[subprocess.Popen[str], int]:
    """A launcher that watches a pipe, and the pipe's write end."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", LAUNCHER, "--parent", str(os.getpid()), "--lifeline", str(read),
         "--", sys.executable, "-c", script],
        pass_fds=(read,), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(read)
    return process, write


def first_number(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_the_engine_ends_when_the_pipe_closes() -> None:
    process, lifeline = watched(SAY_AND_SLEEP)
    engine = psutil.Process(first_number(process))
    os.close(lifeline)
    assert process.wait(10) == -signal.SIGKILL
    assert not engine.is_running()
    process.communicate()


def test_sigterm_reaches_the_engine() -> None:
    process, lifeline = watched(SAY_AND_SLEEP)
    engine = psutil.Process(first_number(process))
    process.terminate()
    assert process.wait(10) == -signal.SIGTERM
    assert not engine.is_running()
    os.close(lifeline)
    process.communicate()


@pytest.mark.parametrize(
    ("script", "code"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 11)", -11), ("import os; os.abort()", -6)],
)
def test_the_engine_s_end_is_passed_on(script: str, code: int) -> None:
    process, lifeline = watched(script)
    assert process.wait(20) == code
    os.close(lifeline)
    process.communicate()


def test_a_daemon_that_is_gone_already_starts_nothing() -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        LAUNCHER,
        "--parent",
        "1",
        "--",
        sys.executable,
        "-c",
        "print('ran')",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (125, "")


@pytest.mark.parametrize("lifeline", [[], ["--lifeline", "0"]])
def test_a_missing_program_has_its_own_code(lifeline: list[str]) -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        LAUNCHER,
        "--parent",
        str(os.getpid()),
        *lifeline,
        "--",
        "/no/such",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    assert done.returncode == 126
    assert done.stderr == "launcher: cannot start /no/such: No such file or directory\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_only_the_main_thread_relies_on_the_parent_death_signal() -> None:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(_parent_death_signal()))
    thread.start()
    thread.join()
    assert (_parent_death_signal(), answers) == (True, [False])
    assert "--lifeline" not in _launcher(None)
    assert _launcher(7)[-3:] == ("--lifeline", "7", "--")
