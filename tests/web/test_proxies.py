"""Requests through a proxy that is real: whole addresses for http, CONNECT for https."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.errors import DownloadError
from appliance.web import Broken, Client, Patience
from appliance.web.addresses import parse
from appliance.web.proxies import Proxy, proxy_for
from tests.web.certificates import authority
from tests.web.server import BODY, Request, Server, head, whole

QUICK = Patience(connect_s=3.0, silence_s=3.0)


def through(request: Request, conn: socket.socket) -> None:
    """A tunnel for CONNECT, else the request passed on to the host of the address."""
    if request.method == "CONNECT":
        host, _, port = request.target.rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            conn.sendall(head("200 Connection established"))
            back = threading.Thread(target=_pump, args=(there, conn), daemon=True)
            back.start()
            _pump(conn, there)
            back.join(5)
        return
    address = parse(request.target)
    with socket.create_connection((address.host, address.port)) as there:
        there.sendall(f"GET {address.target} HTTP/1.1\r\nHost: {address.authority}\r\n\r\n".encode())
        there.shutdown(socket.SHUT_WR)
        _pump(there, conn)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def guarded(request: Request, conn: socket.socket) -> None:
    """`through`, for ann with the password p@ss."""
    wanted = f"Basic {base64.b64encode(b'ann:p@ss').decode()}"
    if request.headers.get("proxy-authorization") != wanted:
        conn.sendall(head("407 Proxy Authentication Required", Content_Length=0))
        return
    through(request, conn)


def test_http_goes_through_the_proxy_as_a_whole_address() -> None:
    with Server(whole) as server, Server(guarded) as proxy:
        env = {"http_proxy": proxy.url.replace("//", "//ann:p%40ss@")}
        with Client(QUICK, env=env) as client:
            assert client.get(f"{server.url}/a?b", token="t0").read1(5) == BODY[:5]

    assert proxy.requests[0].target == f"{server.url}/a?b"
    assert proxy.requests[0].headers["host"] == f"127.0.0.1:{server.port}"
    assert "proxy-authorization" not in server.requests[0].headers


def test_https_goes_through_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.file))
    with Server(whole, tls=ca.context("IP:127.0.0.1")) as server, Server(guarded) as proxy:
        env = {"HTTPS_PROXY": proxy.url.replace("//", "//ann:p%40ss@")}
        with Client(QUICK, env=env) as client:
            for _ in range(2):
                assert client.get(f"{server.url}/a", token="t0").read1(5) == BODY[:5]

    (connect,) = proxy.requests  # one tunnel, used twice
    assert (connect.method, connect.target) == ("CONNECT", f"127.0.0.1:{server.port}")
    assert "authorization" not in connect.headers
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer t0"] * 2
    assert "proxy-authorization" not in server.requests[0].headers


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("user", ["", "ann:WRONG@"])
def test_a_proxy_that_wants_another_password_is_told(scheme: str, user: str) -> None:
    with Server(guarded) as proxy:
        env = {"all_proxy": proxy.url.replace("//", f"//{user}")}
        with Client(QUICK, env=env) as client, pytest.raises(DownloadError) as caught:
            client.get(f"{scheme}://example.org/")

    assert "asks for a user and a password" in str(caught.value)
    assert "WRONG" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "error"),
    [("403 Forbidden", DownloadError), ("502 Bad Gateway", Broken), ("429 Too Many Requests", Broken)],
)
def test_a_proxy_that_refuses_a_tunnel_is_told(status: str, error: type[Exception]) -> None:
    def refuse(request: Request, conn: socket.socket) -> None:
        conn.sendall(head(status, Content_Length=0))

    with (
        Server(refuse) as proxy,
        Client(QUICK, env={"https_proxy": proxy.url}) as client,
        pytest.raises(error, match=f"proxy 127.0.0.1 .*{status[:3]}"),
    ):
        client.get("https://example.org/")


@pytest.mark.parametrize(
    "url", ["socks5://localhost:1", "https://localhost:1", "socks4://u:SECRET@h:1", "//"]
)
def test_other_kinds_of_proxies_are_refused(url: str) -> None:
    with Client(QUICK, env={"ALL_PROXY": url}) as client, pytest.raises(DownloadError) as caught:
        client.get("http://example.org/")

    assert "can't be used" in str(caught.value)
    assert "NO_PROXY" in (caught.value.hint or "")
    assert "SECRET" not in str(caught.value)


P = "http://proxy:3128"
FOUND = Proxy("proxy", 3128)


@pytest.mark.parametrize(
    ("env", "url", "found"),
    [
        ({"HTTP_PROXY": P}, "http://h/", FOUND),
        ({"HTTP_PROXY": P}, "https://h/", None),
        ({"https_proxy": "proxy:3128"}, "https://h/", FOUND),
        ({"HTTPS_PROXY": "http://other", "https_proxy": P}, "https://h/", FOUND),
        ({"HTTPS_PROXY": P, "https_proxy": ""}, "https://h/", None),
        ({"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, "http://h/", None),
        ({"all_proxy": P, "no_proxy": "h"}, "http://h/", None),
        ({"all_proxy": P, "NO_PROXY": "x, .example.org ,y"}, "http://a.example.org/", None),
        ({"all_proxy": P, "NO_PROXY": "*.example.org"}, "http://a.example.org/", None),
        ({"all_proxy": P, "NO_PROXY": "example.org"}, "http://badexample.org/", FOUND),
        ({"all_proxy": P, "NO_PROXY": "*"}, "http://a.example.org/", None),
        ({"all_proxy": P, "NO_PROXY": "h:8080"}, "http://h:8080/", None),
        ({"all_proxy": P, "NO_PROXY": "h:8080"}, "http://h/", FOUND),
        ({"all_proxy": P, "NO_PROXY": "::1"}, "http://[::1]:80/", None),
        ({"all_proxy": P, "NO_PROXY": ""}, "http://h/", FOUND),
        ({"all_proxy": "http://u%3A:p%40@proxy:3128"}, "http://h/", Proxy("proxy", 3128, "u::p@")),
        ({"all_proxy": "http://[::1]:1"}, "http://h/", Proxy("::1", 1)),
    ],
)
def test_the_environment_names_the_proxy(env: dict[str, str], url: str, found: Proxy | None) -> None:
    assert proxy_for(parse(url), env) == found


def test_hosts_that_need_no_proxy_are_asked_directly() -> None:
    def never(request: Request, conn: socket.socket) -> None:
        raise AssertionError

    asked: Callable[[Request, socket.socket], None] = never
    with Server(whole) as server, Server(asked) as proxy:
        env = {"http_proxy": proxy.url, "no_proxy": "127.0.0.1"}
        with Client(QUICK, env=env) as client:
            assert client.get(server.url).status == 200

    assert proxy.connections == 0
