"""What do the first bytes say? A login page must fail in its first kilobyte, not after four gigabytes."""

from __future__ import annotations

import struct

from appliance.errors import ApplianceError, DownloadError, NotVerified
from appliance.text import clean_line, decode

NEEDED = 8
"""Bytes that decide: magic and version."""
WANTED = 1024
"""Bytes that also give a page's first line."""

MAGIC = b"GGUF"
_VERSIONS = (1, 2, 3)
_LFS = b"version https://git-lfs"
_PAGES = (b"<!doc", b"<html", b"<?xml", b"<head", b"<body", b"{", b"<!--")


def problem(first: bytes, name: str, source: str) -> ApplianceError | None:
    """The error for a file that begins with `first`; None when it begins like a GGUF file.

    `source` says where it comes from, for people.
    """
    if first[:4] == MAGIC:
        return _version_problem(first, name)
    start = first.lstrip()[:16].lower()
    if first.startswith(_LFS):
        return DownloadError(
            f"{source} sent a pointer of Git LFS in place of {name}.",
            cause="The repository was copied without its large files.",
            hint="Use the original repository, or a mirror that has the files.",
        )
    if start.startswith(_PAGES):
        return DownloadError(
            f"{source} sent a page in place of {name}.",
            cause=f"It begins with: {clean_line(decode(first), 200)}",
            hint="A proxy or a login page may stand in between; open the address in a browser.",
        )
    if first[:2] == b"\x1f\x8b":
        return DownloadError(
            f"{source} sent {name} compressed.",
            cause="The bytes are gzip, though none was asked for.",
            hint="A proxy may be changing the transfer; try without it.",
        )
    return NotVerified(
        f"{name} is no GGUF file.",
        cause=f"It begins with {first[:4]!r}, not with {MAGIC!r}.",
        hint=f"Nothing of it is used. {source} offers other bytes than the catalog pins.",
    )


def _version_problem(first: bytes, name: str) -> ApplianceError | None:
    if len(first) < NEEDED:
        return NotVerified(f"{name} ends in the middle of its header.", cause=f"It has {len(first)} bytes.")
    (version,) = struct.unpack("<I", first[4:8])
    if version in _VERSIONS:
        return None
    return NotVerified(
        f"{name} is GGUF of version {version}, which is not known here.",
        hint="A newer release of llama-appliance may read it.",
    )
