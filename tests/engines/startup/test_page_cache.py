"""What of a file is in RAM, against states that were brought about."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from appliance.engines.startup import cached, page_cache
from tests.engines.startup.files import MIB, drop, file_of, read

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")


def test_a_file_that_was_read_is_in_ram_and_one_that_was_dropped_is_not(tmp_path: Path) -> None:
    path = file_of(tmp_path / "model", 8 * MIB + 123)
    drop(path)
    found = cached([path])
    assert found is not None
    assert (found.n_bytes, found.resident) == (8 * MIB + 123, 0)
    path.read_bytes()
    found = cached([path])
    assert found is not None
    assert (found.missing, found.fraction) == (0, 1.0)


def test_the_part_that_was_read_counts_and_looking_reads_nothing(tmp_path: Path) -> None:
    path = file_of(tmp_path / "model", 16 * MIB)
    drop(path)
    read(path, 4 * MIB, 8 * MIB)
    for _ in range(2):
        found = cached([path])
        assert found is not None
        assert 4 * MIB <= found.resident <= 6 * MIB, "the system may read a little further by itself"


def test_windows_add_up_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(tmp_path / "model", 5 * MIB)
    path.read_bytes()
    monkeypatch.setattr(page_cache, "_WINDOW", 2 * MIB)
    found = cached([path, path])
    assert found is not None
    assert (found.n_bytes, found.resident) == (10 * MIB, 10 * MIB)


def test_nothing_is_known_of_files_that_are_not_there_or_of_which_the_kernel_would_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path / "model", MIB)
    assert cached([path, tmp_path / "missing"]) is None
    path.chmod(0o444)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(path).st_uid + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cached([path]) is None, "another user's file that this one may not write"


def test_an_empty_file_misses_nothing(tmp_path: Path) -> None:
    path = file_of(tmp_path / "empty", 0)
    found = cached([path])
    assert found is not None
    assert (found.missing, found.fraction) == (0, 1.0)


def test_a_pipe_does_not_hold_the_look_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = cached([tmp_path / "pipe"])
    assert found is None or found.n_bytes == 0
