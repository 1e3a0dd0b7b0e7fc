"""A child process that keeps the machine awake as long as it lives."""

from __future__ import annotations

import asyncio
import contextlib
import os

from appliance.daemon.machine.inhibitors.values import NotHeld
from appliance.text import clean_line, decode

_PASSED_ON = ("PATH", "DBUS_SYSTEM_BUS_ADDRESS")
"""Nothing else of our environment: it may hold keys of remotes."""
_GRACE_S = 0.5
_MOST_WORDS = 4096
_QUESTION = b"?\n"


class _Watch(asyncio.SubprocessProtocol):
    """What is seen of the child. Its end is told at once, also when a child of its own keeps the pipes open
    (asyncio's `Process.wait` does not return then).
    """

    def __init__(self) -> None:
        self.exited = asyncio.Event()
        self.told = asyncio.Event()
        """It has answered, or ended."""
        self.silent = asyncio.Event()
        """Its stderr is closed: nothing more comes."""
        self.answer = bytearray()
        self.words = bytearray()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.answer if fd == 1 else self.words
        kept += data
        del kept[:-_MOST_WORDS]
        if _QUESTION in self.answer:
            self.told.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 2:
            self.silent.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.told.set()


class Child:
    """Owned by who started it. Its stdin is a pipe whose other end only this process has, so it is closed
    when this process ends, however it ends.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, watch: _Watch) -> None:
        self._transport = transport
        self._watch = watch

    @classmethod
    async def start(cls, *argv: str) -> Child:
        """Raises NotHeld."""
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        making = asyncio.create_task(cls._spawn(argv, {**env, "LC_ALL": "C"}))
        try:
            return await asyncio.shield(making)  # asyncio can hang when a spawn is cancelled halfway
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await (await making).end()
            raise
        except OSError as error:
            raise NotHeld(f"{argv[0]} does not start: {error.strerror or error}", lasting=True) from error

    @classmethod
    async def _spawn(cls, argv: tuple[str, ...], env: dict[str, str]) -> Child:
        # a session of its own: Ctrl-C in our terminal is ours to answer
        transport, watch = await asyncio.get_running_loop().subprocess_exec(
            _Watch, *argv, env=env, start_new_session=True
        )
        return cls(transport, watch)

    async def echoes(self, limit_s: float) -> bool:
        """Whether what it is told comes back; False when it ends instead. Raises TimeoutError."""
        stdin = self._transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        stdin.write(_QUESTION)
        async with asyncio.timeout(limit_s):
            await self._watch.told.wait()
        return not self._watch.exited.is_set()

    async def ended(self) -> str:
        """Wait for its end; what it said last, or how it ended."""
        await self._watch.exited.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._watch.silent.wait()
        words = decode(bytes(self._watch.words)).splitlines()
        lines = [clean_line(line, 300) for line in words if line.strip()]
        if lines:
            return lines[-1]
        code = self._transport.get_returncode() or 0
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    async def end(self, *, by_signal: bool = False) -> None:
        """End it: by closing its stdin, or by SIGTERM where it reads none; by force when it stays."""
        if (stdin := self._transport.get_pipe_transport(0)) is not None:
            stdin.close()
        try:
            with contextlib.suppress(ProcessLookupError):
                if by_signal:
                    self._transport.terminate()
                if not await self._gone():
                    self._transport.kill()
                    await self._gone()
        finally:
            self._transport.close()  # kills what still runs

    async def _gone(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._watch.exited.wait()
        return self._watch.exited.is_set()
