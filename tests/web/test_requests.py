"""What is sent, to whom, and where redirects lead."""

from __future__ import annotations

import base64
import socket

import pytest

import appliance
from appliance.errors import DownloadError
from appliance.web import Broken, Client, Patience, shown
from tests.web.server import BODY, Request, Server, head, redirect, whole

QUICK = Patience(connect_s=2.0, silence_s=1.0)


def test_a_request_says_who_asks_and_wants_no_encoding() -> None:
    with Server(whole) as server, Client(QUICK, env={}) as client:
        client.get(f"{server.url}/a%20b/ü?q=1 2&x=ä#part", {"Range": "bytes=5-"}, token="t0")

    (request,) = server.requests
    assert request.target == "/a%20b/%C3%BC?q=1%202&x=%C3%A4"
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}", "accept-encoding": "identity", "accept": "*/*",
        "user-agent": f"llama-appliance/{appliance.__version__}",
        "range": "bytes=5-", "authorization": "Bearer t0",
    }  # fmt: skip


def test_an_ipv6_literal_is_asked() -> None:
    with Server(whole, host="::1") as server, Client(QUICK, env={}) as client:
        answer = client.get(f"{server.url}/a")
        assert answer.read1(10)

    assert server.requests[0].headers["host"] == f"[::1]:{server.port}"


def test_user_and_password_of_an_address_are_sent_and_never_shown() -> None:
    with Server(whole) as server, Client(QUICK, env={}) as client:
        url = server.url.replace("//", "//ann:p%40ss@")
        client.get(url)

    sent = server.requests[0].headers["authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == b"ann:p@ss"
    assert shown(f"{url}/x?sig=1#f") == f"{server.url}/x"


@pytest.mark.parametrize(
    ("headers", "token", "named"),
    [
        ({"If-Range": "a\r\nX-Evil: 1"}, None, "A header"),
        ({"If-Range": "a\nb"}, None, "A header"),
        ({"If-Range": "a\0b"}, None, "A header"),
        ({"If-Range": "日本"}, None, "A header"),
        ({"X-A\r\nX-Evil": "1"}, None, "A header"),
        ({"": "1"}, None, "A header"),
        ({}, "hf_SECRET\n", "The token"),
        ({}, "hf_SECRET\r\nX-Evil: 1", "The token"),
    ],
)
def test_a_header_that_would_break_out_is_refused(
    headers: dict[str, str], token: str | None, named: str
) -> None:
    with Server(whole) as server, Client(QUICK, env={}) as client:
        with pytest.raises(DownloadError) as caught:
            client.get(server.url, headers, token=token)

        assert (caught.value.cause or "").startswith(named)
        assert "SECRET" not in str(caught.value)
        assert server.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "", "file:///etc/passwd", "ftp://host/a", "host/path", "http://", "http://:80/", "http:///path",
        "http://[::1/", "http://[fe80::1%25eth0]/", "http://host:99999/", "http://host:abc/", "http://a b/",
        "http://a..b/", "http://" + "x" * 64 + "/", "http://ho\r\nst/", "http://user:SECRET/@host/",
        "https://-/SECRET", "http://host\\@evil/",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_and_not_repeated(url: str) -> None:
    with Client(QUICK, env={}) as client, pytest.raises(DownloadError) as caught:
        client.get(url)

    assert "address can't be used" in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in shown(url) or url == "https://-/SECRET"


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/b/c", "/b/c"),
        ("c?x=1", "/a/c?x=1"),
        ("?x=1", "/a/b?x=1"),
        ("../up", "/up"),
        ("/ä ö", "/%C3%A4%20%C3%B6"),
        ("/d#part", "/d"),
    ],
)
def test_relative_redirects_are_followed(location: str, target: str) -> None:
    def reply(request: Request, conn: socket.socket) -> bool | None:
        raw = location.encode().decode("latin-1")
        return (redirect(raw) if request.target == "/a/b" else whole)(request, conn)

    with Server(reply) as server, Client(QUICK, env={}) as client:
        answer = client.get(f"{server.url}/a/b")
        assert answer.read1(10) == BODY[:10]

    assert server.requests[-1].target == target
    assert (answer.redirected, answer.url) == (True, server.url + target)
    assert [request.connection for request in server.requests] == [0, 0]


@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
def test_each_kind_of_redirect_is_followed(status: str) -> None:
    with (
        Server(whole) as there,
        Server(redirect(f"{there.url}/x", status)) as here,
        Client(QUICK, env={}) as client,
    ):
        assert client.get(here.url).read1(10) == BODY[:10]


def test_a_circle_of_redirects_ends() -> None:
    with (
        Server(redirect("/again")) as server,
        Client(QUICK, env={}) as client,
        pytest.raises(DownloadError, match="redirects in circles"),
    ):
        client.get(server.url)

    assert len(server.requests) == QUICK.redirects + 1


@pytest.mark.parametrize(
    "location", ["", "ftp://host/", "file:///etc/passwd", "http://", "http://ho st/", "//", "http://[1/"]
)
def test_a_redirect_to_nowhere_is_told(location: str) -> None:
    with (
        Server(redirect(location)) as server,
        Client(QUICK, env={}) as client,
        pytest.raises(DownloadError, match=r"127\.0\.0\.1 redirects to nowhere"),
    ):
        client.get(server.url)


def test_token_and_password_stay_with_the_origin_that_they_are_for() -> None:
    with Server(whole) as other:
        last = redirect(f"{other.url}/b")

        def reply(request: Request, conn: socket.socket) -> bool | None:
            return (redirect("/second") if request.target == "/first" else last)(request, conn)

        with Server(reply) as first, Client(QUICK, env={}) as client:
            client.get(f"{first.url}/first", token="t0")
            client.get(f"{first.url}/first".replace("//", "//ann:pw@"))

    assert [request.headers.get("authorization") for request in first.requests] == [
        "Bearer t0", "Bearer t0", "Basic YW5uOnB3", "Basic YW5uOnB3",
    ]  # fmt: skip
    assert [request.headers.get("authorization") for request in other.requests] == [None, None]


def test_what_a_hub_states_is_kept_from_the_whole_chain() -> None:
    def reply(request: Request, conn: socket.socket) -> bool:
        if request.target == "/a":
            conn.sendall(
                head("302 Found", Location="/b", X_Repo_Commit="c0", X_Linked_Size=9, Content_Length=0)
            )
        else:
            conn.sendall(head(X_Linked_Etag='"e"', Content_Length=0))
        return True

    with Server(reply) as server, Client(QUICK, env={}) as client:
        answer = client.get(f"{server.url}/a")

    assert answer.stated == {"X-Repo-Commit": "c0", "X-Linked-Size": "9", "X-Linked-Etag": '"e"'}


def test_a_host_that_refuses_is_named_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(QUICK, env={}) as client, pytest.raises(Broken) as caught:
        client.get(f"http://127.0.0.1:{port}/secret?sig=SECRET")

    assert caught.value.why == "127.0.0.1 can't be reached (Connection refused)"


def test_a_name_that_does_not_exist_is_told() -> None:
    with Client(QUICK, env={}) as client, pytest.raises(Broken, match="the name nowhere"):
        client.get("http://nowhere.invalid/")
