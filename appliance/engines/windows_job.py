"""Windows: a job object for each engine, so that none outlives the daemon, however that ends.

The handle of the job is held by the daemon alone and is not inherited. When the daemon ends, in whatever
way, the system closes the handle, and with the last handle every process in the job is ended
(JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE). What an engine starts is in its job, too, unless it was started in the
moment between the engine's own start and its entry into the job.

Sources: Microsoft's pages "Job Objects", "JOBOBJECT_EXTENDED_LIMIT_INFORMATION" and
"AssignProcessToJobObject".
The types are checked and the sizes of the structures tested; on Windows itself it was never run.
"""

from __future__ import annotations

import ctypes
import logging
import sys

log = logging.getLogger("appliance.engines")

KILL_ON_JOB_CLOSE = 0x2000
_EXTENDED_LIMITS = 9
"""JobObjectExtendedLimitInformation."""
_SET_QUOTA_AND_TERMINATE = 0x0100 | 0x0001
"""What AssignProcessToJobObject needs of the process's handle."""


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = [
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", ctypes.c_uint32),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", ctypes.c_uint32),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", ctypes.c_uint32),
        ("SchedulingClass", ctypes.c_uint32),
    ]


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = [
        ("BasicLimitInformation", BasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    ]


class Job:
    """Holds one engine and what it starts; closing it ends them. Of no effect without a handle."""

    def __init__(self, handle: int | None = None) -> None:
        self._handle = handle

    def close(self) -> None:
        """End whatever is still in it."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _close(handle)


NO_JOB = Job()


def kill_on_close() -> ExtendedLimits:
    """The limits of a job whose processes end with its last handle."""
    limits = ExtendedLimits()
    limits.BasicLimitInformation.LimitFlags = KILL_ON_JOB_CLOSE
    return limits


if sys.platform == "win32":
    from ctypes import wintypes

    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel.CreateJobObjectW.argtypes = (ctypes.c_void_p, wintypes.LPCWSTR)
    _kernel.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel.SetInformationJobObject.argtypes = (
        wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD,
    )  # fmt: skip
    _kernel.SetInformationJobObject.restype = wintypes.BOOL
    _kernel.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
    _kernel.OpenProcess.restype = wintypes.HANDLE
    _kernel.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
    _kernel.AssignProcessToJobObject.restype = wintypes.BOOL
    _kernel.CloseHandle.argtypes = (wintypes.HANDLE,)
    _kernel.CloseHandle.restype = wintypes.BOOL

    def job_for(pid: int) -> Job:
        """A job with this process in it. Without one, the next daemon ends what is left (`end_orphans`)."""
        handle = _kernel.CreateJobObjectW(None, None)
        if not handle:
            return _failed("CreateJobObject")
        job, limits = Job(handle), kill_on_close()
        if not _kernel.SetInformationJobObject(
            handle, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
        ):
            job.close()
            return _failed("SetInformationJobObject")
        process = _kernel.OpenProcess(_SET_QUOTA_AND_TERMINATE, False, pid)
        entered = bool(process) and bool(_kernel.AssignProcessToJobObject(handle, process))
        said = None if entered else _failed("AssignProcessToJobObject")
        if process:
            _kernel.CloseHandle(process)
        if said is not None:
            job.close()
        return said or job

    def _failed(call: str) -> Job:
        log.warning("No job object for the engine: %s failed with %d", call, ctypes.get_last_error())
        return Job()

    def _close(handle: int) -> None:
        _kernel.CloseHandle(handle)

else:

    def job_for(pid: int) -> Job:
        """Elsewhere a signal (Linux) or a pipe (macOS) does it."""
        return NO_JOB

    def _close(handle: int) -> None:
        """There is no handle here."""
