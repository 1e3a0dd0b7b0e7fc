"""The misbehaving server of the store's tests in a thread of its own, beside commands in their processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.end_to_end.appliance import Home
from tests.store.server import Act, Host, honest


@contextmanager
def serving(body: bytes) -> Iterator[Host]:
    """A running server. `host.acts` may be changed from here: a list is replaced in one step."""
    host = Host(body)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(host.start(), loop).result(10)
    try:
        yield host
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def always(host: Host, act: Act = honest) -> None:
    """Every request from now on plays this act."""
    host.acts = [act] * 500


def pulled(home: Home, *names: str) -> list[Path]:
    """Fetch models; their files."""
    for name in names:
        assert home.run("models", "pull", name).code == 0
    return [next((home.root / "data" / "models" / name).rglob("*.gguf")) for name in names]
