"""The security floor: builds before 2026-08-14 lack fixes for malicious model files.

Build numbers inside repackaged binaries may mean nothing, so what can't be dated is only a note.
"""

from __future__ import annotations

import re

from appliance.engines.values import EngineKind

BUILD = 10_434
"""llama.cpp build of mid-August 2026."""
XLLAMACPP = (2026, 8)
"""Year and month in that package's version."""
LLAMA_CPP_PYTHON = (0, 3, 36)
"""The first release known to vendor a llama.cpp after the floor (2026-10-01)."""


def floor_note(kind: EngineKind, version: str) -> str | None:
    """A sentence when this build is older than the floor, or can't be dated; None when it is new enough."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if kind == "llama-server":
        build = re.match(r"\D*(\d{3,6})\b(?!\.)", version)
        if build is None or int(build[1]) < 1_000:
            return "This build can't be dated; use one of August 2026 or later (llama.cpp 10434)."
        old = int(build[1]) < BUILD
    elif kind == "xllamacpp":
        old = numbers[:2] < XLLAMACPP
    else:
        old = numbers < LLAMA_CPP_PYTHON
    return "This build is older than August 2026 and lacks security fixes; update it." if old else None
