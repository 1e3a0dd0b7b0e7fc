"""A question in a thread of its own, which is left alone when nobody waits for it any more.

Unlike work on files, a question changes nothing, so Ctrl-C need not wait for its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def aside(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` beside the event loop. A cancel returns at once; the thread ends by its own deadline."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def answered(value: T) -> None:
        if not result.done():
            result.set_result(value)

    def failed(error: BaseException) -> None:
        if not result.done():
            result.set_exception(error)

    def ask() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            try:
                value = context.run(work, *args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                loop.call_soon_threadsafe(failed, error)
            else:
                loop.call_soon_threadsafe(answered, value)

    threading.Thread(target=ask, name="hub-question", daemon=True).start()
    return await result
