"""The sensor child as the monitor sees it: start, next line, command, end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping

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

    def __init__(self, process: Process) -> None:
        self._process = process
        self._errors = asyncio.create_task(self._drain_errors())

    @classmethod
    async def spawn(cls, env: Mapping[str, str] | None = None) -> SensorChild:
        """Start it. Raises OSError when that is not possible."""
        process = await asyncio.create_subprocess_exec(
            *ARGV, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=_LINE_LIMIT,
            env=dict(env) if env is not None else None,
        )  # fmt: skip
        return cls(process)

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
        return line

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
        with contextlib.suppress(ValueError):
            while line := await self._process.stderr.readline():
                log.debug("sensor: %s", clean_line(decode(line)))
