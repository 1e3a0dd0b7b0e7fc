"""What a remote publishes. Values only; None is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["ok", "refused", "timeout", "reset", "5xx", "4xx", "cancelled"]
"""How one request to a remote ended."""
BreakerState = Literal["closed", "open", "half-open"]
UpState = Literal["unknown", "up", "down"]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One entry of the remote's /models."""

    id: str
    max_model_len: int | None


@dataclass(frozen=True, slots=True)
class RemoteSnapshot:
    """One remote at its last probe."""

    name: str
    kind: str
    url: str
    """Without user and password."""
    state: UpState
    models: tuple[ServedModel, ...]
    latency_ms: float | None
    """Of the last answered GET /models."""
    waiting: int | None
    """Requests in the remote's own queue, all of its engines together."""
    running: int | None
    version: str | None
    checked_at: float | None
    """Unix seconds."""
    error: str | None
    """Why it is down, for people."""
    breaker: BreakerState
    notes: tuple[str, ...] = ()
    """What the user should know about the way there (plain http, a missing key)."""

    def to_json(self) -> Mapping[str, Any]:
        """The remote's row in `status --json` and `/api/remotes`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a remote can do for one local model now. The router's RemoteView has the same fields."""

    name: str
    up: bool
    """It answered its last probe, and its breaker lets a request through."""
    has_model: bool
    max_model_len: int | None
    detail: str
    """Why not, for people; empty when it can serve."""
