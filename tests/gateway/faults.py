"""Ways in which a side fails before its first delta."""

from __future__ import annotations

from typing import Any

from tests.gateway.house import House
from tests.gateway.upstream import Script

DOWN = {
    "503 loading": Script(
        status=503, error={"code": 503, "message": "Loading model", "type": "unavailable_error"}
    ),
    "dies": Script(breaks_after=0, breakage="die"),
    "ends": Script(breaks_after=0, breakage="eof"),
}
"""An engine that is not there: the remote may answer."""
ODD = {
    "500": Script(status=500),
    "502": Script(status=502),
    "429": Script(status=429),
    "error": Script(breaks_after=0, breakage="error"),
    "error and done": Script(breaks_after=0, breakage="error_done"),
    "garbage": Script(breaks_after=0, breakage="garbage"),
    "only done": Script(breaks_after=0, breakage="false_done"),
    "no stream": Script(content_type="text/html"),
}
"""Answers of an engine that lives: no reason to send the prompt away. Of a remote, failures all the same."""
FAILING = {**DOWN, **ODD}


async def read(house: House, **body: Any) -> tuple[int, Any, bytes]:
    async with house.post(**body) as got:
        return got.status, got.headers, await got.read()
