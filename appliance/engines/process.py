"""One child process: started so that it can't outlive us, identified so that the wrong one is never ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from appliance import processes
from appliance.engines.adapters import Command
from appliance.engines.discovery import CHILDREN
from appliance.engines.environment import MARKER
from appliance.engines.logs import LogFile, LogPump, LogRing
from appliance.engines.windows_job import NO_JOB, Job, job_for

SWEEP_S = 2.0


@dataclass(slots=True)
class Child:
    """A started engine. `wait` and `end` may be called by its one owner only."""

    process: asyncio.subprocess.Process
    marker: str
    pump: LogPump
    started: float | None
    """Unix time of its start: with the pid it names one process for ever."""
    ticks: int | None
    """Linux: the same in clock ticks since boot."""
    _lifeline: int | None = None
    _job: Job = NO_JOB

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """The exit code (negative: a signal), once the last line of its log is read, too."""
        code = await self.process.wait()
        await asyncio.to_thread(self.pump.join, 2.0)
        return code

    async def end(self, timeout_s: float) -> int:
        """SIGTERM, SIGKILL after `timeout_s`, then whatever it left behind."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
        try:
            async with asyncio.timeout(timeout_s):
                await self.process.wait()
        except TimeoutError:
            self.kill()
        code = await self.process.wait()
        await asyncio.to_thread(self.clear_up)
        return code

    def kill(self) -> None:
        """SIGKILL. Of no effect when it has ended."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    def clear_up(self) -> None:
        """End children that the engine left behind, and close the lifeline."""
        self._job.close()
        end_marked(self.marker, since=self.started)
        self.pump.join(2.0)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def activity(self) -> tuple[float, int]:
        """(CPU seconds, bytes read): both grow while it works. (0, 0) when it can't be read."""
        try:
            process = psutil.Process(self.pid)
            times = process.cpu_times()
            read = process.io_counters().read_bytes if hasattr(process, "io_counters") else 0
        except (psutil.Error, OSError):
            return 0.0, 0
        return times.user + times.system, read


async def spawn(
    command: Command,
    *,
    marker: str,
    ring: LogRing,
    on_line: Callable[[str], None],
    secret: str = "",
    file: LogFile | None = None,
) -> Child:
    """Start `command` in a session of its own, its output pumped into `ring` by a thread.

    Raises OSError when not even the launcher can be started; an engine that can't be shows as exit code 126.
    """
    out_read, out_write = os.pipe()
    lifeline_read, lifeline = os.pipe() if _needs_lifeline() else (None, None)
    passed: dict[str, Any] = {} if lifeline_read is None else {"pass_fds": (lifeline_read,)}
    stdin = _filled_pipe(command.stdin)
    try:
        process = await asyncio.create_subprocess_exec(
            *_launcher(lifeline_read),
            *command.argv,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
            stdout=out_write,
            stderr=out_write,
            env=command.env,
            start_new_session=True,
            **passed,
        )
    except BaseException:
        os.close(out_read)
        if lifeline is not None:
            os.close(lifeline)
        raise
    finally:
        for fd in (out_write, stdin, lifeline_read):
            if fd is not None:
                os.close(fd)
    pump = LogPump(out_read, ring, file, on_line, secret)
    pump.start()
    started, ticks = processes.start_time(process.pid), processes.start_ticks(process.pid)
    return Child(process, marker, pump, started, ticks, lifeline, job_for(process.pid))


def _parent_death_signal() -> bool:
    """Linux only, and it fires when the spawning *thread* ends: so only from the main one."""
    return sys.platform == "linux" and threading.current_thread() is threading.main_thread()


def _needs_lifeline() -> bool:
    """Windows can't pass a pipe on like this, and has jobs instead."""
    return sys.platform != "win32" and not _parent_death_signal()


def _launcher(lifeline: int | None) -> tuple[str, ...]:
    if sys.platform == "win32":
        return ()
    # -S, -I: nothing but the standard library, so that it costs a few milliseconds.
    script = (sys.executable, "-I", "-S", str(CHILDREN / "launcher.py"), "--parent", str(os.getpid()))
    return (*script, "--") if lifeline is None else (*script, "--lifeline", str(lifeline), "--")


def _filled_pipe(data: bytes | None) -> int | None:
    """The read end of a pipe that already holds `data` and is closed behind it."""
    if data is None:
        return None
    read, write = os.pipe()
    with os.fdopen(write, "wb") as pipe:
        pipe.write(data)  # a spec is far smaller than the pipe's 64 KiB
    return read


def _carries(pid: int, marker: str) -> bool:
    try:
        return psutil.Process(pid).environ().get(MARKER) == marker
    except (psutil.Error, OSError):
        return False


def end_marked(marker: str, *, since: float | None = None) -> None:
    """Kill what still runs of an engine: every process that carries its marker, in whatever session.

    `since`: Unix time of its start; what is older is not looked into.
    """
    left = [process for process in psutil.process_iter() if _is_left(process, marker, since)]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=SWEEP_S)


def _is_left(process: psutil.Process, marker: str, since: float | None) -> bool:
    try:
        if since is not None and process.create_time() < since - processes.TOLERANCE_S:
            return False
    except (psutil.Error, OSError):
        return False
    return _carries(process.pid, marker)


def end_stranger(pid: int, started: float, ticks: int | None, marker: str, timeout_s: float = 5.0) -> bool:
    """End an engine that a dead daemon left, if it still is that one, and all that it started.

    True when it was ended.
    """
    found = processes.is_same(pid, started, ticks) and _carries(pid, marker)
    if found:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            process.send_signal(signal.SIGTERM)
            _, alive = psutil.wait_procs([process], timeout=timeout_s)
            for stubborn in alive:
                stubborn.kill()
            psutil.wait_procs(alive, timeout=timeout_s)
    end_marked(marker, since=started)
    return found


def unlink(path: Path | str | None) -> None:
    """Remove a file that may be gone already."""
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)
