"""Localhost is not an open door: DNS rebinding, web pages, other users, other machines."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from appliance.errors import Rejected
from appliance.gateway.access import check_host, check_origin
from appliance.gateway.peers import from_tables, is_loopback, peer_uid
from tests.gateway.house import House


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8417", "LOCALHOST:1", "127.0.0.1:8417", "[::1]:8417", "[::1]", "localhost."],
)
def test_own_names_pass_with_any_port(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:8417", "127.0.0.1.evil.example", "localhost:80@evil.example",
     "127.0.0.2", "[::2]", "localhost:", "local\u0130host", "localhost/x", "::1"],
)  # fmt: skip
def test_other_names_do_not(host: str | None) -> None:
    with pytest.raises(Rejected) as refused:
        check_host(host)
    assert refused.value.http_status == 403


def test_a_name_of_the_settings_passes() -> None:
    check_host("host.docker.internal:8417", ["Host.Docker.Internal"])


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "http://localhost:3000", "http://127.0.0.1:8417.evil.example", ""],
)
def test_foreign_and_null_origins_are_refused(origin: str) -> None:
    with pytest.raises(Rejected):
        check_origin(origin, "localhost:8417")


def test_programs_send_no_origin_and_our_own_pages_send_ours() -> None:
    check_origin(None, "localhost:8417")
    check_origin("http://localhost:8417", "localhost:8417")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_a_web_page_reaches_no_engine(house: House, headers: dict[str, str], status: int) -> None:
    url = f"{house.url}/v1/completions"
    sent = {"Content-Type": "application/json", **headers}
    async with house.http.post(url, data=b'{"prompt":"x"}', headers=sent) as got:
        assert got.status == status
        error = (await got.json())["error"]
        assert error["type"]
        assert got.headers["X-Appliance-Route"] == "none"
    assert house.engine.seen == []


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/metrics", "/v1/receipts/x", "/nothing"])
async def test_rebinding_reaches_no_route_at_all(house: House, path: str) -> None:
    async with house.http.get(house.url + path, headers={"Host": "evil.example"}) as got:
        assert got.status == 403


async def test_a_preflight_gets_no_permission(house: House) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    async with house.http.options(f"{house.url}/v1/chat/completions", headers=asked) as got:
        assert got.status == 403
        assert not [name for name in got.headers if name.lower().startswith("access-control")]


@pytest.mark.skipif(sys.platform != "linux", reason="the peer's user is read from /proc")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_user_behind_a_connection_is_found(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with server, socket.create_connection(server.getsockname()[:2]) as client:
        mine, ours = client.getsockname()[:2], server.getsockname()[:2]
        assert peer_uid(mine, ours) == from_tables(mine) == os.getuid()
        assert peer_uid((mine[0], 1), ours) is None
    assert peer_uid(mine, ours) is None, "nobody holds it any more"


@pytest.mark.skipif(sys.platform != "linux", reason="the peer's user is asked of Linux")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_a_real_connection_of_another_user_is_refused(house: House) -> None:
    port = int(house.url.rpartition(":")[2])
    os.seteuid(65534)  # a socket belongs to the user who makes it
    try:
        theirs = socket.create_connection(("127.0.0.1", port))
    finally:
        os.seteuid(0)
    here = theirs.getsockname()
    assert peer_uid(here, ("127.0.0.1", port)) == from_tables(here) == 65534
    reader, writer = await asyncio.open_connection(sock=theirs)
    writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"reject.key" in answer


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("::1%lo", True),
     ("10.0.0.5", False), ("::ffff:10.0.0.5", False), ("fe80::1%eth0", False), ("", False), ("x", False)],
)  # fmt: skip
def test_only_loopback_addresses_are_this_machine(host: str, own: bool) -> None:
    assert is_loopback(host) == own


def test_another_users_connection_is_seen_as_theirs(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    words = f"{int.from_bytes(bytes([127, 0, 0, 1]), sys.byteorder):08X}"
    head = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )
    row = "   0: {}:{:04X} {}:20E1 01 00000000:00000000 00:00000000 00000000  {}  0 {} 1 0 20 4 30 10 -1\n"
    table.write_text(head + row.format(words, 5000, words, 1234, 99) + row.format(words, 5001, words, 0, 0))
    assert from_tables(("127.0.0.1", 5000), [table]) == 1234
    assert from_tables(("::ffff:127.0.0.1", 5000), [table]) == 1234
    assert from_tables(("127.0.0.1", 5001), [table]) is None, "no process holds it: unknown, not root"
    assert from_tables(("127.0.0.1", 5002), [table, tmp_path / "missing"]) is None


async def test_a_caller_whose_user_is_another_is_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.gateway.access.peer_uid", lambda *_: os.getuid() + 1)
    async with house.post() as got:
        assert got.status == 403
        assert got.headers["X-Appliance-Reason"] == "reject.key"
    assert house.engine.seen == []


async def test_a_caller_whose_user_is_unknown_never_goes_to_a_remote(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.gateway.access.peer_uid", lambda *_: None)
    house.remote.up = True
    async with house.post() as got:
        assert got.status == 200
    async with house.post(headers={"X-Appliance-Route": "remote"}) as got:
        assert got.status == 403
    house.local.state = "failed"
    async with house.post() as got:
        assert got.status in (403, 503)
    assert house.far.seen == []
