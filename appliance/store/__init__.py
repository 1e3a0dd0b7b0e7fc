"""Models on disk: fetched, proven by their SHA-256, recorded, checked before each load, removed."""

from __future__ import annotations

from appliance.store.store import Store
from appliance.store.types import (
    Leftover,
    Limits,
    OnProgress,
    Phase,
    Progress,
    Stored,
    StoredFile,
    VerifyResult,
)

__all__ = [
    "Leftover",
    "Limits",
    "OnProgress",
    "Phase",
    "Progress",
    "Store",
    "Stored",
    "StoredFile",
    "VerifyResult",
]
