"""`daemon.json` and the lock: one daemon a user, found by clients, private."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

from appliance.client import record as client_record
from appliance.daemon import record
from appliance.errors import DaemonRunning
from appliance.paths import Paths


def test_what_the_daemon_writes_the_client_reads(paths: Paths) -> None:
    written = record.new_record("http://127.0.0.1:8417")
    record.write(paths, written)
    assert stat.S_IMODE(paths.daemon_file.stat().st_mode) == 0o600
    found = client_record.read(paths.daemon_file)
    assert (found.pid, found.url, found.token) == (os.getpid(), "http://127.0.0.1:8417", written.token)
    assert written.token not in repr(found)


def test_each_start_has_a_token_of_its_own() -> None:
    tokens = {record.new_record("http://x").token for _ in range(20)}
    assert len(tokens) == 20
    assert min(len(token) for token in tokens) >= 32


def test_only_our_own_record_is_taken_away(paths: Paths) -> None:
    ours = record.new_record("http://127.0.0.1:1")
    theirs = record.new_record("http://127.0.0.1:2")
    record.write(paths, theirs)
    record.remove(paths, ours)
    assert record.read(paths.daemon_file) == theirs
    record.remove(paths, theirs)
    assert not paths.daemon_file.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}'])
def test_a_broken_record_counts_as_none(paths: Paths, text: str) -> None:
    paths.daemon_file.write_text(text, encoding="utf-8")
    assert record.read(paths.daemon_file) is None


HOLDER = """
import sys
from pathlib import Path
from appliance.daemon.record import DaemonLock
from appliance.paths import Paths
root = Path(sys.argv[1])
DaemonLock_ = DaemonLock(Paths(*(root / name for name in ("config", "data", "state", "cache", "run"))))
DaemonLock_.take()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_daemon_is_told_where_the_first_one_is_and_a_killed_one_frees_the_lock(paths: Paths) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(paths.state.parent)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        paths.daemon_file.write_text(
            json.dumps(
                {"pid": 4242, "start_time": 1.0, "version": "0", "url": "http://127.0.0.1:9", "token": "t"}
            )
        )
        with pytest.raises(DaemonRunning) as caught:
            record.DaemonLock(paths).take()
        assert "http://127.0.0.1:9/v1" in str(caught.value)
        assert "4242" in str(caught.value)
        paths.daemon_file.write_text("broken")
        with pytest.raises(DaemonRunning, match=f"pid {holder.pid}"):
            record.DaemonLock(paths).take()
    finally:
        holder.kill()
        holder.communicate()
    lock = record.DaemonLock(paths)
    lock.take()
    assert (paths.state / record.LOCK_NAME).read_text() == f"{os.getpid()}\n"
    lock.release()
