"""Which OS user holds the other end of a loopback TCP connection (Linux).

The kernel is asked for exactly that socket (sock_diag(7), microseconds); where it doesn't answer, the tables
in /proc/net are read, which takes milliseconds on a busy machine. None where it can't be known.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
import sys
from collections.abc import Collection
from pathlib import Path

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_PROC_TCP = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLM_F_REQUEST = 1
_TCP_LISTEN = 10
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")
_PORTS = struct.Struct("!HH")
_NO_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_ANSWER = struct.Struct("=BBBB48sIIIII")


class _NoAnswer(Exception):
    """The kernel can't be asked this way here."""


def peer_uid(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """The user whose process connected from `peer` to our end `own`; None when unknown."""
    try:
        return _from_kernel(peer, own)
    except _NoAnswer:
        return from_tables(peer)


def _from_kernel(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    if sys.platform != "linux":
        raise _NoAnswer
    there, here = _plain(peer[0]), _plain(own[0])
    if there.version != here.version:
        raise _NoAnswer
    family = socket.AF_INET if there.version == 4 else socket.AF_INET6
    ends = _PORTS.pack(peer[1], own[1]) + there.packed.ljust(16, b"\0") + here.packed.ljust(16, b"\0")
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + _NO_COOKIE
    head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(0.05)
            kernel.send(head + body)
            answer = kernel.recv(4096)
    except OSError:
        raise _NoAnswer from None
    return _owner(answer, ends[: _PORTS.size])


def _owner(answer: bytes, ports: bytes) -> int | None:
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _NLMSG_ERROR:
        code = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if code == errno.ENOENT:
            return None
        raise _NoAnswer
    if kind != _SOCK_DIAG_BY_FAMILY or len(answer) < _HEADER.size + _ANSWER.size:
        raise _NoAnswer
    _, state, _, _, ends, _, _, _, uid, inode = _ANSWER.unpack_from(answer, _HEADER.size)
    # Without such a connection the kernel offers a listener; without an inode no process holds it.
    found = state != _TCP_LISTEN and inode != 0 and ends[: _PORTS.size] == ports
    return int(uid) if found else None


def from_tables(peer: tuple[str, int], tables: Collection[Path] = _PROC_TCP) -> int | None:
    """The same from /proc/net/tcp{,6}: `local_address` is the caller's own end.

    Addresses stand there as 32-bit words in the machine's byte order.
    """
    address = _plain(peer[0])
    forms = [address]
    if isinstance(address, ipaddress.IPv4Address):
        forms.append(ipaddress.IPv6Address(f"::ffff:{address}"))
    wanted = {f"{_proc_hex(form)}:{peer[1]:04X}" for form in forms}
    for table in tables:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            fields = line.split(maxsplit=10)
            # A socket that no process holds any more (no inode) is listed with uid 0.
            if len(fields) > 9 and fields[1] in wanted and fields[9] != "0":
                return int(fields[7])
    return None


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return _plain(host).is_loopback
    except ValueError:
        return False


def _plain(host: str) -> Address:
    """The address; an IPv4 one that is mapped into IPv6 as IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _proc_hex(address: Address) -> str:
    raw = address.packed
    words = (raw[i : i + 4] for i in range(0, len(raw), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
