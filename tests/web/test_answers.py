"""Bodies: what is whole arrives byte for byte, what is not is never taken for whole."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from appliance.web import Answer, Broken, Client, Patience
from tests.web.server import BODY, Request, Server, chunks, head, reset, whole

QUICK = Patience(connect_s=2.0, silence_s=0.3)
CHUNKED = head(Transfer_Encoding="chunked")


def body_of(answer: Answer, limit: int = 1000) -> bytes:
    found = b""
    while piece := answer.read1(limit):
        assert len(piece) <= limit
        found += piece
    return found


def saying(*parts: bytes, then: Callable[[socket.socket], None] | None = None) -> Server:
    def reply(request: Request, conn: socket.socket) -> bool:
        for part in parts:
            conn.sendall(part)
        if then is not None:
            then(conn)
            return False
        return True

    return Server(reply)


WHOLE = {
    "with a length": head(Content_Length=len(BODY)) + BODY,
    "chunked": CHUNKED + chunks(BODY[:1], BODY[1:3000], BODY[3000:]),
    "chunked with extensions and a trailer": CHUNKED + b"1;a=b\r\n" + BODY[:1] + b"\r\n"
    + chunks(BODY[1:], end=False) + b"0\r\nX-Sum: 1\r\n\r\n",
    "behind interim answers": head("100 Continue") + head("103 Early Hints", Link="</a>")
    + head(Content_Length=len(BODY)) + BODY,
    "the length twice, and the same": head(Content_Length=len(BODY)).replace(
        b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(BODY)) + BODY,
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_body_arrives_and_its_connection_is_used_again(name: str) -> None:
    with saying(WHOLE[name]) as server, Client(QUICK, env={}) as client:
        for _ in range(3):
            answer = client.get(f"{server.url}/a")
            assert (answer.status, body_of(answer)) == (200, BODY)
            assert answer.read1(1) == b""

    assert [request.connection for request in server.requests] == [0, 0, 0]


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"])
def test_a_body_without_a_length_ends_with_its_connection(start: bytes) -> None:
    with saying(start, BODY, then=socket.socket.close) as server, Client(QUICK, env={}) as client:
        assert body_of(client.get(server.url)) == BODY
        assert body_of(client.get(server.url)) == BODY

    assert server.connections == 2


CUT: dict[str, bytes] = {
    "short of its length": head(Content_Length=len(BODY) + 1) + BODY,
    "without any byte of its length": head(Content_Length=5),
    "in a chunk": CHUNKED + b"1000\r\n" + BODY[:100],
    "between chunks": CHUNKED + chunks(BODY, end=False),
    "in a chunk's size": CHUNKED + chunks(BODY, end=False) + b"1",
    "with a size that is none": CHUNKED + b"zz\r\n" + BODY,
    "with a negative size": CHUNKED + b"-5\r\n" + BODY,
}


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("ending", [socket.socket.close, reset], ids=["end", "reset"])
def test_a_body_that_is_cut_is_broken(name: str, ending: Callable[[socket.socket], None]) -> None:
    with saying(CUT[name], then=ending) as server, Client(QUICK, env={}) as client:
        with pytest.raises(Broken) as caught:
            body_of(client.get(f"{server.url}/secret?sig=SECRET"))

        assert caught.value.why in ("127.0.0.1 ended the transfer early", "the connection broke")
        with pytest.raises(Broken):
            body_of(client.get(server.url))  # a new connection, which ends the same way

    assert server.connections == 2


NONSENSE: dict[str, bytes] = {
    "HTTP/0.9": b"hello\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\n\r\n",
    "a status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "a status of one digit": b"HTTP/1.1 2 OK\r\n\r\n",
    "an SSH server": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 70_000 + b"\r\n\r\n",
    "a status line without end": b"HTTP/1.1 200 " + b"x" * 70_000,
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    "a length of letters": head(Content_Length="ten") + BODY,
    "a negative length": head(Content_Length="-1") + BODY,
    "a length with a sign": head(Content_Length="+5") + BODY,
    "a length beyond 2**64": head(Content_Length="9" * 20) + BODY,
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n" + BODY,
    "an unknown coding": head(Transfer_Encoding="gzip, chunked") + BODY,
    "only interim answers": head("100 Continue") + head("103 Early Hints") * 40,
    "a switch of protocols": head("101 Switching Protocols") + b"\0\1\2" * 100,
}


@pytest.mark.parametrize("name", NONSENSE)
def test_an_answer_that_makes_no_sense_is_broken(name: str) -> None:
    with (
        saying(NONSENSE[name], then=socket.socket.close) as server,
        Client(QUICK, env={}) as client,
        pytest.raises(Broken, match="makes no sense"),
    ):
        client.get(server.url)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-", head(Content_Length=10) + b"12345"])
def test_silence_ends_in_time(said: bytes) -> None:
    def reply(request: Request, conn: socket.socket) -> None:
        conn.sendall(said)
        server.over.wait(5)

    with Server(reply) as server:
        begin = time.monotonic()
        with Client(QUICK, env={}) as client, pytest.raises(Broken) as caught:
            body_of(client.get(server.url))

    assert caught.value.why == "127.0.0.1 sent nothing for too long"
    assert 0.25 < time.monotonic() - begin < 2


def test_a_head_that_drips_ends_in_time() -> None:
    def drip(request: Request, conn: socket.socket) -> None:
        conn.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
        while not server.over.wait(0.02):
            conn.sendall(b"a")

    with Server(drip) as server, Client(QUICK, env={}) as client:
        begin = time.monotonic()
        with pytest.raises(Broken, match="too long"):
            client.get(server.url)

    assert time.monotonic() - begin < 2


def test_a_kept_connection_that_ended_meanwhile_is_replaced_without_an_error() -> None:
    with saying(WHOLE["chunked"], then=socket.socket.close) as server, Client(QUICK, env={}) as client:
        for _ in range(3):
            assert body_of(client.get(server.url)) == BODY

    assert server.connections == 3


def test_a_kept_connection_that_ends_at_the_next_request_is_replaced_without_an_error() -> None:
    def once(request: Request, conn: socket.socket) -> bool:
        if [r.connection for r in server.requests].count(request.connection) == 2:
            return False  # reads the second request and closes
        return whole(request, conn)

    with Server(once) as server, Client(QUICK, env={}) as client:
        assert body_of(client.get(server.url)) == BODY
        assert body_of(client.get(server.url)) == BODY

    assert [request.connection for request in server.requests] == [0, 0, 1]


def test_a_fresh_connection_that_ends_is_not_tried_again() -> None:
    with (
        saying(then=socket.socket.close) as server,
        Client(QUICK, env={}) as client,
        pytest.raises(Broken, match="the connection broke"),
    ):
        client.get(server.url)

    assert server.connections == 1


def test_bytes_that_nobody_asked_for_end_a_connection() -> None:
    extra = WHOLE["with a length"] + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfalse"
    with saying(extra) as server, Client(QUICK, env={}) as client:
        for _ in range(2):
            assert body_of(client.get(server.url)) == BODY

    assert server.connections == 2


def test_a_short_rest_is_read_away_and_a_long_one_costs_a_connection() -> None:
    long = b"x" * (4 << 20)

    def reply(request: Request, conn: socket.socket) -> bool:
        sent = long if request.target == "/long" else BODY
        conn.sendall(head(Content_Length=len(sent)) + sent)
        return True

    with Server(reply) as server, Client(QUICK, env={}) as client:
        client.get(f"{server.url}/short").read1(10)
        client.get(f"{server.url}/long").read1(10)  # on the connection of the first
        assert body_of(client.get(f"{server.url}/short")) == BODY

    assert [request.connection for request in server.requests] == [0, 0, 1]


def test_headers_are_found_in_any_case_and_hold_no_control_characters() -> None:
    raw = b'HTTP/1.1 200 OK\r\nX-Odd: a\x1b[31mb\r\n folded\r\nETAG: "e"\r\nContent-Length: 0\r\n\r\n'
    with saying(raw) as server, Client(QUICK, env={}) as client:
        answer = client.get(server.url)

    assert answer.headers["etag"] == answer.headers.get("ETag") == '"e"'
    assert "Etag" in answer.headers
    assert "\x1b" not in answer.headers["X-Odd"]
    assert "\n" not in answer.headers["X-Odd"]
    assert answer.headers.get("Content-Range", "none") == "none"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answers_without_a_body_keep_their_connection(status: str) -> None:
    with saying(head(status)) as server, Client(QUICK, env={}) as client:
        assert client.get(server.url).read1(10) == b""
        assert client.get(server.url).status == int(status[:3])

    assert server.connections == 1
