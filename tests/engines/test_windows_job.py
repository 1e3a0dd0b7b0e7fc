"""The structures of a job object as Windows lays them out. The calls themselves run on Windows only."""

from __future__ import annotations

import ctypes
import sys

import pytest

from appliance.engines.windows_job import NO_JOB, BasicLimits, ExtendedLimits, job_for, kill_on_close


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="the sizes are those of 64-bit systems")
def test_the_structures_have_the_sizes_of_the_windows_headers() -> None:
    assert (ctypes.sizeof(BasicLimits), ctypes.sizeof(ExtendedLimits)) == (64, 144)
    assert BasicLimits.LimitFlags.offset == 16
    assert ExtendedLimits.IoInfo.offset == 64


def test_the_limit_ends_all_processes_with_the_last_handle() -> None:
    raw = bytes(kill_on_close())
    assert raw[16:20] == (0x2000).to_bytes(4, sys.byteorder)
    assert raw.replace(raw[16:20], b"", 1).strip(b"\0") == b""


@pytest.mark.skipif(sys.platform == "win32", reason="there it is a job")
def test_elsewhere_there_is_no_job_and_closing_it_does_nothing() -> None:
    job = job_for(1)
    job.close()
    job.close()
    assert job is NO_JOB
