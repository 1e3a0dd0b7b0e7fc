"""`appliance logs` of one model, and what happened to its engine."""

from __future__ import annotations

import os
import signal

import psutil

from tests.end_to_end.appliance import MODEL, Running

REF = f"{MODEL}:Q4_1"


def test_the_log_of_a_model_is_found_by_its_name_and_another_name_is_refused(running: Running) -> None:
    for name in (MODEL, REF):
        done = running.home.run("logs", name, "-n", "2000")
        assert done.code == 0, done.err
        assert "[appliance] ready after" in done.out
    assert len(running.home.run("logs", "-n", "3").out.splitlines()) == 3
    wrong = running.home.run("logs", "no-such-model")
    assert wrong.code == 2
    assert f"Logs are here of: {REF}." in wrong.err


def test_a_crash_is_told_as_an_event_and_so_is_the_way_back(running: Running) -> None:
    pid = running.engine_pid()
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    done = running.home.run("chat", "--max-tokens", "2", stdin="Hi\n\n")  # it waits for the engine
    assert done.code == 0, done.err
    told = running.home.run("logs", "--events", "--json").document["events"]
    kinds = [event["kind"] for event in told]
    assert kinds[:1] == ["loaded"]
    assert kinds[-2:] == ["crashed", "restarted"]
    assert told[-2]["ref"] == REF
    assert "signal 9 (SIGKILL)" in told[-2]["text"]
    lines = running.home.run("logs", MODEL, "--events", "-n", "2").out.splitlines()
    assert [line.split()[2] for line in lines] == ["crashed", "restarted"]
    (engine,) = running.home.run("status", "--json").document["engines"]
    assert engine["crash"]["exit"] == "signal 9 (SIGKILL)"
    assert engine["crash"]["flags"]
