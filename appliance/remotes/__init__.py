"""Endpoints elsewhere that may answer instead of this machine: watched, spoken to, avoided when they fail."""

from __future__ import annotations

from appliance.remotes.breaker import Breaker
from appliance.remotes.failures import Failure, FailureKind, normalise_error
from appliance.remotes.pool import RemotePool
from appliance.remotes.reasoning import rename_reasoning
from appliance.remotes.remote import Remote
from appliance.remotes.retry import retry_after_s
from appliance.remotes.translate import Untranslatable, translate
from appliance.remotes.types import BreakerState, Offer, Outcome, RemoteSnapshot, ServedModel

__all__ = [
    "Breaker",
    "BreakerState",
    "Failure",
    "FailureKind",
    "Offer",
    "Outcome",
    "Remote",
    "RemotePool",
    "RemoteSnapshot",
    "ServedModel",
    "Untranslatable",
    "normalise_error",
    "rename_reasoning",
    "retry_after_s",
    "translate",
]
