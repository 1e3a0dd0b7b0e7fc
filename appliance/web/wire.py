"""One connection: bytes out, bytes in, each wait with an end.

http.client reads from it as if it were a socket (`makefile`). The socket never blocks: what is there is taken
at once, and only an empty one is waited for.
"""

from __future__ import annotations

import contextlib
import io
import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from appliance.web.stop import STOPPED, Stop
from appliance.web.trust import Trust
from appliance.web.types import Broken

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 1 << 16
_RECORDS = 1 << 18  # of TLS, whose records are 16 KiB: so much is gathered before a read returns


class _Kept(io.BufferedReader):
    """Stays open when an answer that read from it closes: the next one reads on."""

    def close(self) -> None:
        pass


class Wire(io.RawIOBase):
    """Owns a connected socket. Every failure is Broken, and the wire can't be used after one."""

    def __init__(self, sock: socket.socket, host: str, stop: Stop) -> None:
        super().__init__()
        self._sock: socket.socket | None = sock
        self._host = host
        self._stop = stop
        self._deadline = 0.0
        self._secure = self._deaf = False
        self.got = 0
        """Bytes received since the last `ask`."""
        self.reused = self.ended = False
        self.reader = _Kept(self, _BUFFER)
        self._handle: socket.socket | None = None
        """The same connection once more: shut down from other threads, closed by this one only."""

    @classmethod
    def over(cls, sock: socket.socket, host: str, stop: Stop) -> Self:
        """A wire that `stop` ends. Raises Broken when that is up already, or OSError; closes it then."""
        wire = cls(sock, host, stop)
        try:
            wire._handle = sock.dup()
            stop.add(wire, wire._end)
        except (Broken, OSError):
            wire.close()
            raise
        return wire

    def secure(self, trust: Trust, host: str, within_s: float) -> None:
        """Go on encrypted, as `host`. Raises DownloadError for its certificate, Broken."""
        sock, self._sock = self._open(), None
        try:
            self._sock = trust.secure(sock, host, within_s)
        except Broken as broken:
            raise Broken(STOPPED if self._stop.is_set else broken.why) from None
        self._secure = True

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """How long the reads and writes of this block may take together. Raises Broken when stopped."""
        if self._stop.is_set:
            raise Broken(STOPPED)
        self._deadline = time.monotonic() + seconds
        yield

    def ask(self, request: bytes) -> None:
        """Send a request."""
        self.got, view = 0, memoryview(request)
        while view:
            sock = self._open()
            try:
                view = view[sock.send(view) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
            except OSError:
                raise self._broken() from None

    def makefile(self, mode: str) -> _Kept:
        """What http.client reads an answer from."""
        return self.reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Take what has arrived, wait for it if nothing has. 0 = the other side has ended."""
        if self._deaf:
            return None
        view = memoryview(buffer)
        while True:
            sock = self._open()
            try:
                got = sock.recv_into(view)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
            except OSError:
                raise self._broken() from None
            else:
                break
        if not got:
            self.ended = True
            if self._stop.is_set:
                raise Broken(STOPPED)
        if got and self._secure:
            got = self._more_records(sock, view, got)
        self.got += got
        return got

    def _more_records(self, sock: socket.socket, view: memoryview, got: int) -> int:
        limit = min(len(view), _RECORDS)
        with contextlib.suppress(OSError):  # nothing more now; a failure comes again at the next read
            while got < limit:
                more = sock.recv_into(view[got:])
                if not more:
                    break
                got += more
        return got

    @property
    def quiet(self) -> bool:
        """Nothing has arrived that nobody asked for, and the other side has not ended."""
        self._deaf = True
        left = self.reader.peek(1)
        self._deaf = False
        if left or self._sock is None:
            return False
        try:
            self._sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._stop.drop(self)
        for sock in (self._handle, self._sock):
            if sock is not None:
                sock.close()
        self._handle = self._sock = None
        super().close()

    def _open(self) -> socket.socket:
        if self._sock is None:
            raise self._broken()
        return self._sock

    def _wait(self, event: int) -> None:
        left = self._deadline - time.monotonic()
        poll = select.poll()
        poll.register(self._open(), event)
        if left <= 0 or not poll.poll(left * 1000):
            raise Broken(f"{self._host} sent nothing for too long")

    def _broken(self) -> Broken:
        self.ended = True
        return Broken(STOPPED if self._stop.is_set else "the connection broke")

    def _end(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(OSError):
                self._handle.shutdown(socket.SHUT_RDWR)
