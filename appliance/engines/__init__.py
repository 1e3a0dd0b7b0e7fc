"""Engines: child processes that speak the OpenAI API. See README.md.

The whole interface of this room is what is exported here.
"""

from __future__ import annotations

from appliance.engines.choice import choose
from appliance.engines.discovery import discover
from appliance.engines.loading import Limits
from appliance.engines.logs import LogRing
from appliance.engines.measure import measure
from appliance.engines.pidfile import end_orphans
from appliance.engines.supervisor import Engine
from appliance.engines.values import (
    Build,
    Choice,
    Endpoint,
    EngineKind,
    EngineSnapshot,
    EngineState,
    Launch,
    LogLine,
)
from appliance.engines.wire import session

__all__ = [
    "Build",
    "Choice",
    "Endpoint",
    "Engine",
    "EngineKind",
    "EngineSnapshot",
    "EngineState",
    "Launch",
    "Limits",
    "LogLine",
    "LogRing",
    "choose",
    "discover",
    "end_orphans",
    "measure",
    "session",
]
