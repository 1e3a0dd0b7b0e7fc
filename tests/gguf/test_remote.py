"""Headers on a server: the same as from a disk, in few requests and few bytes."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.errors import DownloadError, GgufError
from appliance.gguf import read_header
from appliance.gguf import remote as module
from tests.gguf.worst import WORST
from tests.gguf.writer import ARRAY, F32, STRING, array, entry, gguf, tensor, text
from tests.web.server import Request, Server, head, redirect

ETAG = '"one"'
FILE = gguf(
    [
        entry("general.architecture", STRING, "llama"),
        text("b") + struct.pack("<IIQ", ARRAY, STRING, 200_000) + text("xxxxx") * 200_000,
        entry("c", F32, 0.5),
    ],
    [tensor("t", (1 << 20,), 0, 0)],
    data=4 << 20,
)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


class Ranges:
    """Serves a file by ranges, as it should be done."""

    def __init__(self, raw: bytes | Path) -> None:
        self.raw = raw
        self.sent = 0

    @property
    def size(self) -> int:
        return self.raw.stat().st_size if isinstance(self.raw, Path) else len(self.raw)

    def __call__(self, request: Request, conn: socket.socket) -> bool:
        first, last = wanted(request)
        last = min(last, self.size - 1)
        if first > last:
            conn.sendall(
                head("416 Range Not Satisfiable", Content_Range=f"bytes */{self.size}", Content_Length=0)
            )
            return True
        body = self.part(first, last + 1)
        self.sent += len(body)
        span = f"bytes {first}-{last}/{self.size}"
        conn.sendall(head("206 Partial", Content_Range=span, Content_Length=len(body), ETag=ETAG) + body)
        return True

    def part(self, first: int, end: int) -> bytes:
        if isinstance(self.raw, bytes):
            return self.raw[first:end]
        with self.raw.open("rb") as file:
            file.seek(first)
            return file.read(end - first)


def wanted(request: Request) -> tuple[int, int]:
    found = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["range"])
    assert found is not None
    return int(found[1]), int(found[2])


def whole_body(request: Request, conn: socket.socket) -> bool:
    """A server that knows no ranges."""
    conn.sendall(head(Content_Length=len(FILE)) + FILE)
    return True


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("local") / "model.gguf"
    path.write_bytes(FILE)
    return path


@pytest.mark.parametrize("fixture", ["smollm2_path", "gemma3_path", "local"])
def test_a_remote_header_is_the_local_one(fixture: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(fixture)
    ranges = Ranges(path)
    with Server(ranges) as server:
        header = read_header(f"{server.url}/model.gguf")

    assert header == read_header(path)
    assert ranges.sent < header.data_offset + (4 << 20)
    assert len(server.requests) <= 8
    assert server.connections == 1


def test_arrays_that_are_passed_over_are_not_fetched(tmp_path: Path) -> None:
    numbers = text("scores") + struct.pack("<IIQ", ARRAY, F32, 4 << 20) + bytes(16 << 20)
    raw = gguf([numbers, entry("after", STRING, "here")])
    ranges = Ranges(raw)
    with Server(ranges) as server:
        assert read_header(server.url).metadata["after"] == "here"

    assert ranges.sent < 1 << 20


@pytest.mark.parametrize("chunked", [False, True])
def test_a_server_without_ranges_is_read_up_to_the_end_of_the_header(chunked: bool, local: Path) -> None:
    def stream(request: Request, conn: socket.socket) -> None:
        conn.sendall(
            head(Transfer_Encoding="chunked") if chunked else head(Content_Length=len(FILE) + (1 << 30))
        )
        for at in range(0, len(FILE), 1 << 16):
            piece = FILE[at : at + (1 << 16)]
            conn.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        server.over.wait(10)

    with Server(stream) as server:
        header = read_header(server.url)

    assert header.tensors == read_header(local).tensors
    assert header.file_size == (None if chunked else len(FILE) + (1 << 30))
    assert len(server.requests) == 1


def test_a_server_may_send_less_than_was_asked_for() -> None:
    ranges = Ranges(FILE)

    def stingy(request: Request, conn: socket.socket) -> bool:
        first, last = wanted(request)
        part = request.headers | {"range": f"bytes={first}-{min(last, first + 99_999)}"}
        return ranges(Request("GET", request.target, part, 0), conn)

    with Server(stingy) as server:
        assert read_header(server.url).metadata["c"] == 0.5

    assert 20 < len(server.requests) < 64


def test_a_signed_address_is_used_again_without_the_token_and_renewed_when_it_expires() -> None:
    ranges = Ranges(FILE)
    served = 0

    def signed(request: Request, conn: socket.socket) -> bool:
        nonlocal served
        if request.target == "/signed?n=1" and served >= 2:
            conn.sendall(head("403 Forbidden", Content_Length=0))
            return True
        served += 1
        return ranges(request, conn)

    with Server(signed) as store:

        def hub(request: Request, conn: socket.socket) -> bool | None:
            return redirect(f"{store.url}/signed?n={len(front.requests)}")(request, conn)

        with Server(hub) as front:
            assert read_header(front.url, token="t0").metadata["c"] == 0.5

    assert len(front.requests) == 2
    assert {request.headers.get("authorization") for request in front.requests} == {"Bearer t0"}
    assert {request.headers.get("authorization") for request in store.requests} == {None}


def test_a_connection_that_breaks_is_tried_again() -> None:
    ranges = Ranges(FILE)

    def flaky(request: Request, conn: socket.socket) -> bool:
        if len(server.requests) % 2:
            span = f"bytes {wanted(request)[0]}-999999/{len(FILE)}"
            conn.sendall(head("206 Partial", Content_Range=span, Content_Length=10) + b"GGU")
            return False
        return ranges(request, conn)

    with Server(flaky) as server:
        assert read_header(server.url).metadata["c"] == 0.5


def _saying(raw: bytes) -> Callable[[Request, socket.socket], bool]:
    def reply(request: Request, conn: socket.socket) -> bool:
        conn.sendall(raw)
        return True

    return reply


def _range_at(offset: int) -> bytes:
    return head("206 Partial", Content_Range=f"bytes {offset}-{offset + 3}/100", Content_Length=4) + b"GGUF"


REFUSED = {
    "a web page": (head(Content_Type="text/html; charset=utf-8", Content_Length=6) + b"<html>", "a web page"),
    "not found": (head("404 Not Found", Content_Length=0), "status 404"),
    "no token": (head("401 Unauthorized", Content_Length=0), "HF_TOKEN"),
    "gated": (head("403 Forbidden", Content_Length=0), "terms"),
    "busy": (head("503 Busy", Content_Length=0), "try again later"),
    "an encoding": (head(Content_Encoding="gzip\x1b", Content_Length=6) + b"abcdef", "encoding gzip"),
    "another range": (_range_at(7), "another range"),
    "a range of nothing": (head("206 Partial", Content_Length=4) + b"GGUF", "another range"),
    "no range at all": (head("416 No", Content_Range="bytes */100", Content_Length=0), "refuses the range"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_answer_that_is_no_file_is_told(name: str) -> None:
    raw, words = REFUSED[name]
    with Server(_saying(raw)) as server, pytest.raises(DownloadError) as caught:
        read_header(f"{server.url}/a.gguf?sig=SECRET")

    assert words in str(caught.value)
    assert caught.value.hint
    assert "SECRET" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_server_that_always_breaks_is_given_up() -> None:
    with Server(lambda request, conn: False) as server, pytest.raises(DownloadError) as caught:
        read_header(f"{server.url}/a.gguf?sig=SECRET")

    assert caught.value.cause == "The connection broke."
    assert len(server.requests) == 3


@pytest.mark.parametrize("change", ["size", "etag"])
def test_a_file_that_changes_between_requests_is_refused(change: str) -> None:
    def changing(request: Request, conn: socket.socket) -> bool:
        first, last = wanted(request)
        later = first > 0
        size = len(FILE) + (1 if later and change == "size" else 0)
        etag = '"two"' if later and change == "etag" else ETAG
        body = FILE[first : last + 1]
        span = f"bytes {first}-{first + len(body) - 1}/{size}"
        conn.sendall(head("206 Partial", Content_Range=span, Content_Length=len(body), ETag=etag) + body)
        return True

    with Server(changing) as server, pytest.raises(DownloadError, match="changed while it was read"):
        read_header(server.url)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "it is empty"),
        (b"GGU", "only 3 bytes"),
        (b"not a model", "not a GGUF"),
        (FILE[:300_000], "cut off"),
    ],
)
def test_a_remote_file_is_refused_as_a_local_one(raw: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    with Server(Ranges(raw)) as server, pytest.raises(GgufError) as there:
        read_header(server.url)
    with pytest.raises(GgufError) as here:
        read_header(path)

    assert words in str(there.value)
    assert str(there.value) == str(here.value)


def test_a_header_that_sends_the_reader_around_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    WORST["a key far behind the other"](path)
    with Server(Ranges(path)) as server, pytest.raises(DownloadError, match="64 requests"):
        read_header(server.url)

    assert len(server.requests) == 64


def test_a_body_that_never_ends_is_given_up() -> None:
    def endless(request: Request, conn: socket.socket) -> None:
        conn.sendall(head() + gguf([array("a", F32, [0.0] * 8)], n_keys=2)[:-64] + b"\x08\0\0\0\0\0\0\0" * 8)
        conn.sendall(b"GGUFGGUF")
        while True:
            conn.sendall(bytes(1 << 20))

    with Server(endless) as server, pytest.raises((GgufError, DownloadError)):
        read_header(server.url)


def test_a_slow_server_is_given_up_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DEADLINE_S", 0.2)

    def drip(request: Request, conn: socket.socket) -> None:
        conn.sendall(head(Content_Length=len(FILE)))
        for byte in FILE:
            conn.sendall(bytes([byte]))
            if server.over.wait(0.01):
                return

    with Server(drip) as server, pytest.raises(DownloadError, match="seconds"):
        read_header(server.url)
