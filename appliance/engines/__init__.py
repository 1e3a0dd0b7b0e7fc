"""Engines: child processes that speak the OpenAI API. See README.md.

The whole interface of this room is what is exported here. What needs an HTTP client loads when it is first
used: a look at the machine does without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from appliance.engines.choice import choose
from appliance.engines.discovery import discover, without_gpu
from appliance.engines.logs import LogBook, LogRing
from appliance.engines.measure import measure
from appliance.engines.pidfile import end_orphans
from appliance.engines.values import (
    Adapter,
    Build,
    Choice,
    CrashReport,
    Endpoint,
    EngineKind,
    EngineSnapshot,
    EngineState,
    Launch,
    LogLine,
)

if TYPE_CHECKING:
    from appliance.engines.leases import Lease
    from appliance.engines.limits import Limits
    from appliance.engines.supervisor import Engine
    from appliance.engines.wire import session

_LATER = {"Engine": "supervisor", "Lease": "leases", "Limits": "limits", "session": "wire"}

__all__ = [
    "Adapter",
    "Build",
    "Choice",
    "CrashReport",
    "Endpoint",
    "Engine",
    "EngineKind",
    "EngineSnapshot",
    "EngineState",
    "Launch",
    "Lease",
    "Limits",
    "LogBook",
    "LogLine",
    "LogRing",
    "choose",
    "discover",
    "end_orphans",
    "measure",
    "session",
    "without_gpu",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(name)
    return getattr(import_module(f"appliance.engines.{_LATER[name]}"), name)
