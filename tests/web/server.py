"""Servers made of bare sockets, so that an answer can be anything: bytes, a silence, a reset."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

BODY = bytes(range(256)) * 16


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived. `headers` has lower-case names; `connection` counts from 0."""

    method: str
    target: str
    headers: dict[str, str]
    connection: int


Reply: TypeAlias = Callable[[Request, socket.socket], bool | None]
"""Answers on the socket; True = read the next request from this connection, else it is closed."""


class Server:
    """Use as a context manager. `requests` holds what was asked, in order."""

    def __init__(
        self, reply: Reply, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, name: str = ""
    ) -> None:
        self._reply = reply
        self._tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        shown = name or (f"[{host}]" if ":" in host else host)
        self.url = f"{'https' if tls else 'http'}://{shown}:{self.port}"
        self.requests: list[Request] = []
        self.connections = 0
        self.ended: queue.Queue[int] = queue.Queue()
        """Numbers of connections that are over."""
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.over = threading.Event()
        """Set when the server ends: what a reply waits for when it is to stay silent."""

    def __enter__(self) -> Self:
        self._go(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(5)

    def _go(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            self._open.add(conn)
            self._go(lambda conn=conn, number=number: self._serve(conn, number))  # type: ignore[misc]

    def _serve(self, conn: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                conn = self._tls.wrap_socket(conn, server_side=True)
                self._open.add(conn)
            while (request := read_request(conn, number)) is not None:
                self.requests.append(request)
                if not self._reply(request, conn):
                    break
        conn.close()
        self.ended.put(number)


def read_request(conn: socket.socket, number: int) -> Request | None:
    """The next request head; None when the client has closed."""
    raw = b""
    while not raw.endswith(b"\r\n\r\n"):
        byte = conn.recv(1)
        if not byte:
            return None
        raw += byte
    first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    pairs = (line.partition(": ") for line in lines)
    return Request(method, target, {name.lower(): value for name, _, value in pairs}, number)


def head(status: str = "200 OK", **headers: str | int) -> bytes:
    """Status line and headers; `_` in a name stands for `-`."""
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def whole(request: Request, conn: socket.socket) -> bool:
    """A good answer."""
    conn.sendall(head(Content_Length=len(BODY)) + BODY)
    return True


def chunks(*parts: bytes, end: bool = True) -> bytes:
    """A chunked body."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return body + (b"0\r\n\r\n" if end else b"")


def redirect(to: str, status: str = "302 Found") -> Reply:
    """An answer that leads to `to`."""

    def reply(request: Request, conn: socket.socket) -> bool:
        conn.sendall(head(status, Location=to, Content_Length=4) + b"away")
        return True

    return reply


def reset(conn: socket.socket) -> None:
    """Close with a reset instead of an orderly end."""
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()
