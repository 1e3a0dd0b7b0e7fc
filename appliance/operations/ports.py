"""Who holds a TCP port, in words for people."""

from __future__ import annotations

import psutil

from appliance.text import clean_line


def holder(port: int) -> str | None:
    """`python (pid 4242)` for the process that listens on `port`; None when nobody does, or it is hidden."""
    pid = _listener(port)
    if pid is None:
        return None
    try:
        return f"{clean_line(psutil.Process(pid).name(), 60)} (pid {pid})"
    except psutil.Error:
        return f"pid {pid}"


def _listener(port: int) -> int | None:
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return connection.pid
    return None
