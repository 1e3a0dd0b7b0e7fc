"""Models on disk: fetched, proven by their SHA-256, recorded, checked before each load, removed."""

from __future__ import annotations

from appliance.store.store import Store
from appliance.store.types import (
    Damage,
    Holding,
    Leftover,
    Limits,
    OnProgress,
    Phase,
    Progress,
    Pruned,
    Repaired,
    Stored,
    StoredFile,
    VerifyResult,
)

__all__ = [
    "Damage",
    "Holding",
    "Leftover",
    "Limits",
    "OnProgress",
    "Phase",
    "Progress",
    "Pruned",
    "Repaired",
    "Store",
    "Stored",
    "StoredFile",
    "VerifyResult",
]
