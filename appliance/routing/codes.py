"""The reason codes: why a request was answered where it was, or not at all.

They stand in response headers, the journal, the status and the UI, so they never change meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "local.ok": "the local engine takes it at once",
        "local.queued": "it waits here for a free slot",
        "local.pinned": "the request asked for the local side",
        "local.fallback": "the remote failed before the first token",
        "local.cap": "a daily cap of the remote is reached",
        "remote.queue": "the local wait is over the limit, or the local queue is full",
        "remote.thermal": "heat: it is critical, or makes the local side too slow, or batch work wait",
        "remote.context": "the prompt is longer than the local context",
        "remote.loading": "the local engine is loading",
        "remote.engine_down": "the local engine is down",
        "remote.not_local": "this model is not served here",
        "remote.battery": "the machine runs on battery, and the settings spare it",
        "remote.faster": "the remote is predicted to be sooner",
        "remote.rule": "the appliance's policy sends it there",
        "remote.forced": "the request asked for the remote side",
        "reject.queue_full": "the queue is full",
        "reject.rate": "the caller's rate limit is reached",
        "reject.thermal": "the machine is critically hot and the request may not leave",
        "reject.unavailable": "no side that may answer can do so now",
        "reject.local_only": "a rule keeps it here, and only a remote could answer",
        "reject.deadline": "the request's deadline has passed",
        "reject.context": "the prompt is longer than every context",
        "reject.unsupported": "no side that may answer can honour a field",
        "reject.not_found": "no side serves this model",
        "reject.key": "the caller needs a key for this",
    }
)
"""Code -> its meaning in a few words."""

STATUS: Mapping[str, int] = MappingProxyType(
    {
        "reject.queue_full": 429,
        "reject.rate": 429,
        "reject.thermal": 503,
        "reject.unavailable": 503,
        "reject.local_only": 503,
        "reject.deadline": 504,
        "reject.context": 400,
        "reject.unsupported": 400,
        "reject.not_found": 404,
        "reject.key": 403,
    }
)
"""The HTTP status of each rejection (a wrong key is 401 in the gateway; here a key is missing: 403)."""

PASSING = frozenset({"reject.queue_full", "reject.rate", "reject.thermal", "reject.unavailable"})
"""Rejections that a later retry may get past; the others stay until somebody changes something."""

RETRY_MIN_S = 1
RETRY_MAX_S = 120
"""Above 120 s the client SDKs don't retry at all."""
