"""Windows: the execution state of one thread, which lives as long as the hold.

The state belongs to the thread that sets it, and ends with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable

from appliance.daemon.machine.inhibitors.values import Hold, NotHeld

ES_CONTINUOUS = 0x80000000
ES_SYSTEM_REQUIRED = 0x00000001
NAME = "SetThreadExecutionState"

SetState = Callable[[int], int]
"""Takes the flags; 0 is a failure, everything else the state before."""


def of_kernel32() -> SetState:
    """The system's function. Raises NotHeld elsewhere."""
    if sys.platform == "win32":
        import ctypes

        function = ctypes.WinDLL("kernel32", use_last_error=True).SetThreadExecutionState
        function.argtypes, function.restype = (ctypes.c_uint32,), ctypes.c_uint32
        return lambda flags: int(function(flags))
    raise NotHeld(f"{NAME} is not here", lasting=True)


class ThreadHold:
    """The thread, and both sides of its life."""

    how = NAME
    but: str | None = None

    def __init__(self, set_state: SetState) -> None:
        self._set_state = set_state
        self._loop = asyncio.get_running_loop()
        self.taken: asyncio.Future[bool] = self._loop.create_future()
        self._over = asyncio.Event()
        self._let_go = threading.Event()
        threading.Thread(target=self._keep, name="keep awake", daemon=True).start()

    async def lost(self) -> str:
        await self._over.wait()
        return f"{NAME}: its thread ended"

    async def release(self) -> None:
        self._let_go.set()
        await self._over.wait()

    def _keep(self) -> None:
        taken = False
        try:
            taken = self._set_state(ES_CONTINUOUS | ES_SYSTEM_REQUIRED) != 0
        finally:
            self._tell(self._answer, taken)
            if taken:
                self._let_go.wait()
                self._set_state(ES_CONTINUOUS)
            self._tell(self._over.set)

    def _answer(self, taken: bool) -> None:
        if not self.taken.done():
            self.taken.set_result(taken)

    def _tell(self, call: Callable[..., object], *values: bool) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and everything with it
            self._loop.call_soon_threadsafe(call, *values)


class ExecutionState:
    """One thread for each hold."""

    def __init__(self, function: Callable[[], SetState] = of_kernel32) -> None:
        self._function = function

    async def take(self) -> Hold:
        hold = ThreadHold(self._function())
        try:
            taken = await hold.taken
        except asyncio.CancelledError:
            await hold.release()
            raise
        if not taken:
            raise NotHeld(f"{NAME} failed", lasting=True)
        return hold
