"""From a name to a connected socket, in a wait that ends in time and can be stopped.

A name with several addresses is tried as RFC 8305 asks: the next address starts a quarter of a second after
the one before, or when that failed, and the first that answers wins. A broken IPv6 costs 0.25 s so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
import time
from itertools import zip_longest
from typing import TypeAlias

from appliance.web.stop import STOPPED, Stop
from appliance.web.types import Broken

_STAGGER_S = 0.25
_MOST_ADDRESSES = 16
_Spot: TypeAlias = tuple[
    socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]


def dial(host: str, port: int, within_s: float, stop: Stop) -> socket.socket:
    """A connected socket in non-blocking mode. Raises Broken, whose text says at which step."""
    deadline = time.monotonic() + within_s
    spots = _resolve(host, port, deadline, stop)
    sock = _Race(host, spots, deadline, stop).run()
    with contextlib.suppress(OSError):  # a connection that just died tells so at the first request
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _resolve(host: str, port: int, deadline: float, stop: Stop) -> list[_Spot]:
    """The addresses of a name, both families in turn.

    The system's resolver can't be interrupted, so that it works in a thread that is left to itself when the
    time is over.
    """
    done, found = threading.Event(), list[_Spot]()

    def ask() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend(_alternating([(info[0], info[4]) for info in infos]))
        done.set()

    with stop.guard(done.set):
        threading.Thread(target=ask, name="resolver", daemon=True).start()
        in_time = done.wait(max(0.0, deadline - time.monotonic()))
    if stop.is_set:
        raise Broken(STOPPED)
    if not in_time:
        raise Broken(f"looking up {host} took too long")
    if not found:
        raise Broken(f"the name {host} can't be resolved")
    return found[:_MOST_ADDRESSES]


def _alternating(spots: list[_Spot]) -> list[_Spot]:
    first = [spot for spot in spots if spot[0] == spots[0][0]]
    other = [spot for spot in spots if spot[0] != spots[0][0]]
    return [spot for pair in zip_longest(first, other) for spot in pair if spot is not None]


class _Race:
    """Several connection attempts at once; use `run` once."""

    def __init__(self, host: str, spots: list[_Spot], deadline: float, stop: Stop) -> None:
        self._host = host
        self._left = list(reversed(spots))
        self._deadline = deadline
        self._stop = stop
        self._selector = selectors.DefaultSelector()
        self._running: set[socket.socket] = set()
        self._code: int | None = None

    def run(self) -> socket.socket:
        wake, waker = socket.socketpair()
        self._selector.register(wake, selectors.EVENT_READ)
        try:
            with self._stop.guard(lambda: _poke(waker)):
                winner = self._won(wake)
            self._running.discard(winner)
            return winner
        finally:
            self._selector.close()
            for sock in (wake, waker, *self._running):
                sock.close()

    def _won(self, wake: socket.socket) -> socket.socket:
        start_next = 0.0
        while self._left or self._running:
            now = time.monotonic()
            if now >= self._deadline:
                raise Broken(f"{self._host} did not answer in time")
            if self._left and (now >= start_next or not self._running):
                self._start()
                start_next = now + _STAGGER_S
                continue
            until = min(self._deadline, start_next) if self._left else self._deadline
            for key, _ in self._selector.select(until - now):
                if key.fileobj is wake:
                    raise Broken(STOPPED)
                if isinstance(key.fileobj, socket.socket) and self._connected(key.fileobj):
                    return key.fileobj
        reason = os.strerror(self._code) if self._code else "no connection"
        raise Broken(f"{self._host} can't be reached ({reason})")

    def _start(self) -> None:
        family, spot = self._left.pop()
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # a family that this system lacks
            self._code = self._code or error.errno
            return
        self._running.add(sock)
        sock.setblocking(False)
        try:
            code = sock.connect_ex(spot)
        except OSError as error:
            code = error.errno or errno.EIO
        if code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            self._selector.register(sock, selectors.EVENT_WRITE)
        else:
            self._failed(sock, code)

    def _connected(self, sock: socket.socket) -> bool:
        self._selector.unregister(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._failed(sock, code)
        return code == 0

    def _failed(self, sock: socket.socket, code: int) -> None:
        self._code = self._code or code
        self._running.discard(sock)
        sock.close()


def _poke(waker: socket.socket) -> None:
    with contextlib.suppress(OSError):
        waker.send(b"!")
