"""Models on disk: fetched, proven by their SHA-256, recorded, checked before each load, removed.

What is exported loads when it is first used: who only needs a lock or an atomic write does without the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"appliance.store.{'store' if name == 'Store' else 'types'}"), name)
