"""The security floor: builds before 2026-08-14 lack fixes for malicious model files.

Build numbers inside repackaged binaries may mean nothing, so what can't be dated is only a note.
"""

from __future__ import annotations

import re
from typing import Literal

from appliance.engines.builds.dates import build_number
from appliance.engines.values import EngineKind

BUILD = 10_434
"""llama.cpp build of mid-August 2026."""
XLLAMACPP = (2026, 8)
"""Year and month in that package's version, where it names no build."""
LLAMA_CPP_PYTHON = (0, 3, 36)
"""The first release known to vendor a llama.cpp after the floor (2026-10-01)."""

Age = Literal["new", "old", "unknown"]
OLD = "It is older than August 2026 and lacks security fixes; update it."
UNDATED = "It can't be dated; use a build of August 2026 or later (llama.cpp 10434)."


def age(kind: EngineKind, version: str) -> Age:
    """Whether a build is at or above the floor, by its version."""
    number = build_number(kind, version)
    if number is not None:
        return "old" if number < BUILD else "new"
    if kind == "llama-server":
        return "unknown"
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if not numbers:
        return "unknown"
    floor = XLLAMACPP if kind == "xllamacpp" else LLAMA_CPP_PYTHON
    return "old" if numbers[: len(floor)] < floor else "new"


def floor_note(found: Age) -> str | None:
    """What a person should know about a build of that age; None when it is new enough."""
    return {"new": None, "old": OLD, "unknown": UNDATED}[found]
