"""Every time and size limit of the gateway in one place; tests inject short ones."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.units import MIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes."""

    hold_s: float = 10.0
    """So long a stream's status and headers wait for the side to be settled."""
    ping_s: float = 15.0
    """A stream whose headers are out is never silent for longer."""
    connect_s: float = 5.0
    """To reach an engine or a remote."""
    first_token_s: float = 600.0
    """From the upstream request to the first delta; the prefill of a long prompt on a CPU takes minutes."""
    load_s: float = 600.0
    """A request waits so long for an engine that is loading."""
    notice_s: float = 1.0
    """So long it may take until the end of an engine's process is known."""
    idle_s: float = 300.0
    """An upstream that says nothing (no ping either) for so long is dead."""
    body_read_s: float = 60.0
    """A client has so long to send its body."""
    write_s: float = 120.0
    """A client that takes nothing for so long is gone: it can't hold a slot for ever."""
    grace_s: float = 4.0
    """So long running replies may go on after the stop; less than the runner's `shutdown_timeout_s`, after
    which aiohttp cuts connections."""
    body_bytes: int = 32 * MIB
    """Of a request; pictures come inside."""
    event_bytes: int = 8 * MIB
    """Of one event of an upstream stream."""
    reply_bytes: int = 64 * MIB
    """Of a plain reply."""
    receipts: int = 2_000
