"""The sensor child as the monitor sees it: start, next line, command, end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping

from appliance.monitor.child.watchdog import TRACE_BYTES
from appliance.monitor.wire import parse_hung
from appliance.text import clean_line, decode

log = logging.getLogger("appliance.monitor")

ARGV = (sys.executable, "-P", "-m", "appliance.monitor.child")
"""-P: nothing of the current folder is imported, whatever is called `queue.py` there."""
_LINE_LIMIT = 1 << 20
_GRACE_S = 0.5


class ChildEnded(Exception):
    """The child ended, or closed its output."""


class SensorChild:
    """One running sensor process. Owned by the monitor's task."""

    def __init__(self, process: Process, trace: _TraceFile) -> None:
        self._process = process
        self._trace = trace
        self._blame: str | None = None
        self._errors = asyncio.create_task(self._drain_errors())

    @classmethod
    async def spawn(
        cls,
        env: Mapping[str, str] | None = None,
        skip: Mapping[str, float] = {},
        deadline_s: float = 3.0,
    ) -> SensorChild:
        """Start it. `skip`: calls to leave out, and for how many seconds. Raises OSError when that is not
        possible.
        """
        trace = _TraceFile()
        orders = json.dumps({"trace": trace.path, "deadline_s": deadline_s, "skip": dict(skip)})
        try:
            process = await asyncio.create_subprocess_exec(
                *ARGV, orders, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=_LINE_LIMIT,
                env=dict(env) if env is not None else None,
            )  # fmt: skip
        except BaseException:
            trace.close()
            raise
        return cls(process, trace)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def line(self, timeout_s: float) -> bytes | None:
        """The next line, or None after `timeout_s`. Raises ChildEnded."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            return None
        except ValueError:  # longer than the limit: garbage of a native library
            return b""
        if not line:
            raise ChildEnded
        self._blame = parse_hung(line) or self._blame
        return line

    def blame(self) -> str | None:
        """The call in which it is now, or was when it ended or was ended; None between two calls.

        What it stands for is the caller's to judge: a child that is hung up on in the middle of a call is not
        to be blamed.
        """
        return self._blame or self._trace.read()

    def command(self, line: str) -> None:
        """Steer it; without effect when it has ended."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(line.encode() + b"\n")

    def hang_up(self) -> None:
        """Close its stdin, which ends it."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def end(self) -> int | None:
        """End it, by force when it does not go by itself; its exit code. One stuck in the kernel is left
        behind.
        """
        self.hang_up()
        if not await self._gone(_GRACE_S):
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._gone(_GRACE_S)
        self._blame = self.blame()
        self._trace.close()
        self._errors.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._errors
        return self._process.returncode

    async def _gone(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        return self._process.returncode is not None

    async def _drain_errors(self) -> None:
        assert self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:  # too long; what is not drained would hold the child up
                continue
            if not line:
                return
            log.debug("sensor: %s", clean_line(decode(line)))


class _TraceFile:
    """Where the child writes the name of the call that runs: a file, since that outlives a native crash."""

    def __init__(self) -> None:
        self._fd, self.path = tempfile.mkstemp(prefix="appliance-sensor-")
        os.write(self._fd, bytes(TRACE_BYTES))

    def read(self) -> str | None:
        """The call; None when none runs."""
        if self._fd < 0:
            return None
        os.lseek(self._fd, 0, os.SEEK_SET)
        what = os.read(self._fd, TRACE_BYTES).split(b"\0", 1)[0]
        return clean_line(decode(what), 120) or None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with contextlib.suppress(OSError):  # usually the child has done it
                os.unlink(self.path)
