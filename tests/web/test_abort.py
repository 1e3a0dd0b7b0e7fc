"""Another thread ends whatever a client waits for."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from appliance.web import Broken, Client, Patience
from tests.web.server import BODY, Request, Server, head, whole

PATIENT = Patience(connect_s=30.0, silence_s=30.0)


@contextlib.contextmanager
def full_listener() -> Iterator[int]:
    """A port at which connections are never accepted and its queue is full, so that the next one hangs."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def ends_when_aborted(
    client: Client, work: Callable[[], object], ready: threading.Event | None = None
) -> float:
    """Seconds from the abort until `work` ended with Broken."""
    ended: list[tuple[float, str]] = []

    def run() -> None:
        with pytest.raises(Broken) as caught:
            work()
        ended.append((time.monotonic(), caught.value.why))

    thread = threading.Thread(target=run)
    thread.start()
    if ready is not None:
        assert ready.wait(10)
    thread.join(0.15)
    assert thread.is_alive(), ended
    begin = time.monotonic()
    client.abort()
    thread.join(10)
    ((at, why),) = ended
    assert why == "the transfer was stopped"
    return at - begin


def test_abort_while_connecting() -> None:
    with full_listener() as port, Client(PATIENT, env={}) as client:
        assert ends_when_aborted(client, lambda: client.get(f"http://127.0.0.1:{port}/")) < 1


def test_abort_while_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, release = threading.Event(), threading.Event()

    def hanging(*args: object, **kwargs: object) -> list[object]:
        asked.set()
        release.wait(10)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    with Client(PATIENT, env={}) as client:
        assert ends_when_aborted(client, lambda: client.get("http://slow.example/"), asked) < 1
    release.set()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\n", head(Content_Length=5) + b"12"])
def test_abort_while_waiting_for_bytes(said: bytes) -> None:
    asked = threading.Event()

    def reply(request: Request, conn: socket.socket) -> None:
        conn.sendall(said)
        asked.set()
        server.over.wait(10)

    def read(client: Client) -> None:
        answer = client.get(server.url)
        while answer.read1(100):
            pass

    with Server(reply) as server, Client(PATIENT, env={}) as client:
        assert ends_when_aborted(client, lambda: read(client), asked) < 1


def test_abort_in_a_tls_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, Client(PATIENT, env={}) as client:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        assert ends_when_aborted(client, lambda: client.get(url)) < 1


def test_after_an_abort_nothing_is_asked_or_read_any_more() -> None:
    with Server(whole) as server, Client(PATIENT, env={}) as client:
        answer = client.get(server.url)
        assert answer.read1(10) == BODY[:10]
        client.abort()
        client.abort()
        with pytest.raises(Broken, match="stopped"):
            answer.read1(10)  # though the rest has arrived already
        with pytest.raises(Broken, match="stopped"):
            client.get(server.url)

    assert len(server.requests) == 1


def test_closing_ends_connections_and_what_was_not_read_is_not_taken_for_whole() -> None:
    with Server(whole) as server:
        client = Client(PATIENT, env={})
        answer = client.get(server.url)
        client.close()
        client.close()
        assert server.ended.get(timeout=5) == 0
        with pytest.raises(Broken, match="closed"):
            answer.read1(10)


def test_an_answer_ends_with_the_next_request() -> None:
    with Server(whole) as server, Client(PATIENT, env={}) as client:
        unread, read = client.get(server.url), client.get(server.url)
        assert unread.read1(10) == b""  # little enough to be read away
        assert read.read1(10) == BODY[:10]


def test_a_hanging_address_costs_a_quarter_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    with Server(whole) as server, full_listener() as full:

        def two(host: str, port: int, **kwargs: int) -> list[object]:
            return [
                *real("127.0.0.1", full, type=kwargs["type"]),
                *real("127.0.0.1", port, type=kwargs["type"]),
            ]

        monkeypatch.setattr(socket, "getaddrinfo", two)
        with Client(PATIENT, env={}) as client:
            begin = time.monotonic()
            assert client.get(f"http://two.example:{server.port}/").status == 200
            assert 0.2 < time.monotonic() - begin < 2


def test_connecting_ends_in_time() -> None:
    with (
        full_listener() as port,
        Client(Patience(connect_s=0.2), env={}) as client,
        pytest.raises(Broken, match="did not answer in time"),
    ):
        client.get(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("name", ["socketpair", "dup"])
def test_a_computer_without_free_files_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*args: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with Server(whole) as server, Client(PATIENT, env={}) as client:
        with monkeypatch.context() as patched:
            patched.setattr(socket if name == "socketpair" else socket.socket, name, none_left)
            with pytest.raises(Broken, match="Too many open files"):
                client.get(server.url)
        assert client.get(server.url).status == 200
