"""Blocking calls off the event loop, without holding up the exit.

`asyncio.to_thread` uses the loop's executor, whose threads are joined when the loop closes: a call that waits
for a silent daemon would keep the terminal for its whole timeout after `q`. Here each call has a daemon
thread that is simply left behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_background(call: Callable[[], T]) -> T:
    """Run `call` in a thread and wait for it. Cancelling the wait does not stop the call."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as caught:  # noqa: BLE001 (handed to the waiting coroutine)
            error = caught
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="ui-call", daemon=True).start()
    return await done
