"""Base addresses that people set: `HF_ENDPOINT`, mirrors of the Hub."""

from __future__ import annotations

from urllib.parse import urlsplit


def problem_of(address: str) -> str | None:
    """Why `address` can't be the base of a Hub, as a sentence without its text; None = it can.

    The form is `http(s)://HOST[:PORT][/PATH]`. A user and password would end in logs and files, and paths
    are added at the end, so a query or a fragment would swallow them.
    """
    if not address.isprintable() or " " in address:  # urlsplit drops line breaks without a word
        return "It holds spaces or control characters."
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return "Its host or port can't be read."
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "It has to begin with http:// or https:// and a host."
    if port == 0:
        return "Its port is 0."
    if "@" in parts.netloc:
        return "It must hold no user and no password."
    if parts.query or parts.fragment or address.endswith(("?", "#")):
        return "It must hold no query and no part after #."
    return None
