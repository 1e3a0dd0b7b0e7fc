"""Requests to an engine as the gateway makes them: with a lease that hears each piece of the reply."""

from __future__ import annotations

import asyncio

import aiohttp

from appliance.engines import Engine, Limits, session

QUICK = Limits(
    stall_s=2.0, load_s=20.0, probe_s=2.0, stop_s=1.0, backoff_s=(0.01,),
    quiet_s=0.1, sign_s=0.3, hang_s=1.2, doubt_s=0.0,
)  # fmt: skip
"""A serving engine may be silent for a second or so."""
BODY = {"stream": True, "messages": [{"role": "user", "content": "Hi"}]}


async def stream(engine: Engine, *, leave_after_s: float | None = None) -> bool:
    """One streamed chat. True when it was complete; what it is not, the lease is told."""
    with engine.busy() as lease:
        try:
            text = b""
            async with (
                asyncio.timeout(leave_after_s),
                session(lease.endpoint) as client,
                client.post("/v1/chat/completions", json=BODY) as answer,
            ):
                async for piece in answer.content.iter_any():
                    lease.beat()
                    text += piece
        except aiohttp.ClientConnectorError:
            lease.suspect()
            return False
        except (TimeoutError, aiohttp.ClientError):
            return False
        if answer.status >= 500 or answer.content_type != "text/event-stream":
            lease.suspect()
            return False
        if b"[DONE]" not in text:
            return False
        lease.worked()
        return True
