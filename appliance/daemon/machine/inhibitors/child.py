"""A child process that keeps the machine awake as long as it lives."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import PIPE, Process

from appliance.daemon.machine.inhibitors.values import NotHeld
from appliance.text import clean_line, decode

_PASSED_ON = ("PATH", "DBUS_SYSTEM_BUS_ADDRESS")
"""Nothing else of our environment: it may hold keys of remotes."""
_GRACE_S = 0.5
_MOST_WORDS = 4096


class Child:
    """Owned by who started it. Its stdin is a pipe whose other end only this process has, so it is closed
    when this process ends, however it ends.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._said = bytearray()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, *argv: str) -> Child:
        """Raises NotHeld."""
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**env, "LC_ALL": "C"},
                start_new_session=True,  # Ctrl-C in our terminal is ours to answer
            )  # fmt: skip
        except OSError as error:
            raise NotHeld(f"{argv[0]} does not start: {error.strerror or error}", lasting=True) from error
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def echoes(self, limit_s: float) -> bool:
        """Whether what it is told comes back; False when it ends instead. Raises TimeoutError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"?\n")
        async with asyncio.timeout(limit_s):
            return await self._process.stdout.readline() == b"?\n"

    async def ended(self) -> str:
        """Wait for its end; what it said last, or how it ended."""
        code = await self._process.wait()
        await asyncio.wait({self._listener}, timeout=_GRACE_S)  # its own children may still hold the pipe
        lines = [clean_line(line, 300) for line in decode(bytes(self._said)).splitlines() if line.strip()]
        if lines:
            return lines[-1]
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    async def end(self, *, by_signal: bool = False) -> None:
        """End it: by closing its stdin, or by SIGTERM where it reads none; by force when it stays."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if by_signal:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        if not await self._gone():
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._gone()
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)

    async def _gone(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._process.wait()
        return self._process.returncode is not None

    async def _listen(self) -> None:
        """Keep the end of what it says; what is not read would hold it up."""
        assert self._process.stderr is not None
        while said := await self._process.stderr.read(_MOST_WORDS):
            self._said += said
            del self._said[:-_MOST_WORDS]
