"""What a daemon stands in: its address, the sockets of others, signals, its log file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

from aiohttp import web

from appliance import settings as settings_room
from appliance.errors import PortTaken
from appliance.operations.ports import holder
from appliance.paths import Paths


async def bind(runner: web.AppRunner, server: settings_room.Server) -> str:
    """Listen, and give the address. Raises PortTaken, which says by whom."""
    site = web.TCPSite(runner, server.host, server.port)
    try:
        await site.start()
    except OSError as error:
        by = await asyncio.to_thread(holder, server.port)
        raise PortTaken(
            f"{server.host}:{server.port} can't be used.",
            cause=f"It is held by {by}." if by else error.strerror,
            hint="End that process, or choose another port: --port N (0 takes a free one).",
        ) from error
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_answered(path: Path) -> bool:
    """Somebody listens there: another daemon's engine, or a plan that is being measured."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """While it runs, signals that end a program call `stop`."""
    loop = asyncio.get_running_loop()
    numbers: list[signal.Signals] = []
    if sys.platform != "win32":  # there Ctrl-C arrives as KeyboardInterrupt instead
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def log_file(paths: Paths) -> Iterator[None]:
    """`daemon.log` in the state folder: bounded, private, without prompts."""
    handler = RotatingFileHandler(
        paths.logs / "daemon.log", maxBytes=2 << 20, backupCount=3, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("appliance")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
