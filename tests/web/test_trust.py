"""Certificates: the system's trust store decides, and nothing else."""

from __future__ import annotations

import socket
import sys
import threading

import pytest

from appliance.errors import DownloadError
from appliance.web import Broken, Client, Patience
from tests.web.certificates import Authority, authority
from tests.web.server import BODY, Request, Server, head, redirect, whole

QUICK = Patience(connect_s=3.0, silence_s=3.0)
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="SSL_CERT_FILE is the trust store of OpenSSL only"
)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ca"))


def test_a_trusted_certificate_is_accepted_and_the_connection_kept(
    ca: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.file))
    big = BODY * 1000

    def reply(request: Request, conn: socket.socket) -> bool:
        conn.sendall(head(Content_Length=len(big)) + big)
        return True

    with (
        Server(reply, tls=ca.context("DNS:localhost"), name="localhost") as server,
        Client(QUICK, env={}) as client,
    ):
        for _ in range(2):
            answer, found = client.get(server.url), b""
            while piece := answer.read1(1 << 20):
                found += piece
            assert found == big

    assert server.connections == 1


def test_a_certificate_of_an_unknown_authority_is_refused(ca: Authority) -> None:
    with (
        Server(whole, tls=ca.context("IP:127.0.0.1")) as server,
        Client(QUICK, env={}) as client,
        pytest.raises(DownloadError) as caught,
    ):
        client.get(server.url)

    assert caught.value.message == "The certificate of 127.0.0.1 is not trusted."
    assert "unable to get local issuer" in (caught.value.cause or "")
    assert "trust store" in (caught.value.hint or "")
    assert server.requests == []


def test_a_certificate_for_another_name_is_refused(ca: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.file))
    with (
        Server(whole, tls=ca.context("DNS:other.example")) as server,
        Client(QUICK, env={}) as client,
        pytest.raises(DownloadError, match="not trusted"),
    ):
        client.get(server.url)

    assert server.requests == []


def test_a_redirect_out_of_encryption_is_not_followed(ca: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.file))
    with Server(whole) as plain:
        leaky = redirect(f"{plain.url}/a?sig=SECRET")
        with (
            Server(leaky, tls=ca.context("IP:127.0.0.1")) as server,
            Client(QUICK, env={}) as client,
            pytest.raises(DownloadError, match="from https to http") as caught,
        ):
            client.get(server.url)

    assert "SECRET" not in str(caught.value)
    assert plain.requests == []


def test_a_server_without_tls_is_told_apart_from_a_bad_certificate() -> None:

    with socket.create_server(("127.0.0.1", 0)) as listener, Client(QUICK, env={}) as client:

        def answer() -> None:
            conn, _ = listener.accept()
            with conn:
                conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                conn.recv(1 << 16)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Broken, match=r"no encrypted connection to 127\.0\.0\.1"):
            client.get(f"https://127.0.0.1:{listener.getsockname()[1]}/")
        thread.join(5)


def test_a_silent_handshake_ends_in_time() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Client(Patience(connect_s=0.3), env={}) as client,
        pytest.raises(Broken, match="in time"),
    ):
        client.get(f"https://127.0.0.1:{listener.getsockname()[1]}/")


def test_a_body_cut_inside_tls_is_broken(ca: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.file))

    def cut(request: Request, conn: socket.socket) -> None:
        conn.sendall(head(Content_Length=len(BODY)) + BODY[:100])

    with Server(cut, tls=ca.context("IP:127.0.0.1")) as server, Client(QUICK, env={}) as client:
        answer = client.get(server.url)
        assert answer.read1(1000) == BODY[:100]
        with pytest.raises(Broken, match="early"):
            answer.read1(1000)
