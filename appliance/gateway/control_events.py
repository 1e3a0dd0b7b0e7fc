"""`/api/events`: the status document as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time

from aiohttp import web

from appliance.gateway.control_door import Door, Handler, denied
from appliance.gateway.control_ports import Document, House

EVENT_PERIOD_S = 1.0
"""Queue and sensors move without a signal, so the document is looked at this often."""
PAUSE_S = 0.2
PING_S = 15.0


def events(control: House, door: Door) -> Handler:
    """First a snapshot, then one whenever the document differs from the last one that was sent."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if not door.lets(request):
            return denied()
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        shown, event, silent_since = None, "snapshot", time.monotonic()
        try:
            while True:
                document = await control.status()
                if document != shown:
                    await _send(response, event, document)
                    shown, event, silent_since = document, "status", time.monotonic()
                elif time.monotonic() - silent_since > PING_S:
                    await response.write(b": ping\n\n")
                    silent_since = time.monotonic()
                if not await control.changed(EVENT_PERIOD_S):
                    return response
                await asyncio.sleep(PAUSE_S)  # a burst of changes is one event
        except ConnectionError:
            return response

    return handle


async def _send(response: web.StreamResponse, event: str, document: Document) -> None:
    data = json.dumps(document, ensure_ascii=False)
    await response.write(f"event: {event}\ndata: {data}\n\n".encode())
