"""What the journal keeps of a request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One request. Unknown values are None; times of a request that never started to answer stay None."""

    request_id: str
    started_at: float
    """Unix time in seconds at which the request arrived."""
    model: str | None
    """The name that the client asked for."""
    served_model: str | None
    """The name of what really answered."""
    route: str
    """`local`, `remote` or `none`."""
    reason: str
    """A reason code such as `local.ok`."""
    lane: str
    path: str
    status: int
    """HTTP status; 499 when the client went away."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    queue_ms: float | None = None
    ttft_ms: float | None = None
    """Milliseconds from arrival to the first token that was sent on."""
    tokens_per_second: float | None = None
    """Decode speed, without the time to the first token."""
    total_ms: float | None = None
    degraded: str | None = None
    """Degradation codes, separated by commas."""
    client: str | None = None
    """The caller's User-Agent, cleaned and cut."""
    thermal: str | None = None
    """Heat of this machine when a local reply ended: `cool warm throttled critical`."""
    power: str | None = None
    """What fed this machine then: `ac` or `battery`."""
    streams: int | None = None
    """The most local requests that ran at once while this one did, itself included."""
    plan: str | None = None
    """Short text key of the plan that a local engine ran with; replies with the same key can be compared."""
    places: str | None = None
    """Where that engine works: ids of GPUs and `cpu`, separated by commas."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Today:
    """Counts since local midnight."""

    local: int
    remote: int
    errors: int
    """Requests that ended with a status of 400 or more, but for 499: a client that leaves is no error."""

    def to_json(self) -> dict[str, int]:
        return asdict(self)
