"""The daemon's stream of server-sent events, read as snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from appliance.client.fields import mapping
from appliance.client.status import StatusSnapshot

if TYPE_CHECKING:
    from http.client import HTTPResponse


def snapshots(response: HTTPResponse) -> Iterator[StatusSnapshot]:
    """Server-sent events as snapshots; comments and events that hold no JSON object are passed over."""
    data: list[bytes] = []
    while line := response.readline():
        stripped = line.rstrip(b"\r\n")
        if stripped.startswith(b"data:"):
            data.append(stripped[5:].removeprefix(b" "))
        elif not stripped and data:
            try:
                document = json.loads(b"\n".join(data))
            except ValueError:
                document = None
            data.clear()
            if mapping(document):
                yield StatusSnapshot.parse(document)
