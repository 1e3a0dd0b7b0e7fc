"""`daemon.json`: where the daemon of this user answers, and the token that opens its control plane."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from appliance import processes
from appliance.client.fields import mapping, number, text, whole
from appliance.errors import NoDaemon

START_HINT = "Start it with: appliance up"
UNCLEAR_HINT = "Start it: `appliance up`; if that says a daemon runs already, end the process it names."
"""For a `daemon.json` that leads nowhere: `appliance down` would follow it to the same place."""


@dataclass(frozen=True, slots=True)
class Record:
    """The contents of `daemon.json`. The token stays out of every repr and error."""

    pid: int
    url: str
    """Root of the gateway, e.g. `http://127.0.0.1:8417`, without `/v1`."""
    version: str | None
    start_time: float | None
    start_ticks: int | None
    token: str = field(repr=False)


def read(file: Path) -> Record:
    """The record of a daemon whose process lives. Raises NoDaemon when there is none."""
    record = _parse(file)
    if not processes.is_same(record.pid, record.start_time, record.start_ticks):
        raise NoDaemon(
            "No appliance daemon is running.",
            cause=f"{file} names process {record.pid}, which has ended.",
            hint=START_HINT,
        )
    return record


def _parse(file: Path) -> Record:
    try:
        document = mapping(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise NoDaemon(
            "No appliance daemon is running.", cause=f"There is no {file}.", hint=START_HINT
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise NoDaemon(
            "The daemon can't be found.", cause=f"{file} can't be read: {reason}.", hint=UNCLEAR_HINT
        ) from None
    pid, url, token = whole(document.get("pid")), text(document.get("url")), document.get("token")
    if (
        pid is None
        or pid <= 0
        or not _is_http(url)
        or not isinstance(token, str)
        or not _is_header_safe(token)
    ):
        raise NoDaemon(
            "The daemon can't be found.",
            cause=f"{file} lacks a usable pid, url or token.",
            hint=UNCLEAR_HINT,
        )
    return Record(
        pid=pid,
        url=str(url).rstrip("/").removesuffix("/v1"),
        version=text(document.get("version")),
        start_time=number(document.get("start_time")),
        start_ticks=whole(document.get("start_ticks")),
        token=token,
    )


def _is_http(url: str | None) -> bool:
    try:
        parts = urlsplit(url or "")
        return parts.scheme == "http" and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        return False


def _is_header_safe(token: str) -> bool:
    """http.client names the offending value in its error, and the token must never stand in one."""
    return token.isascii() and token.isprintable()
