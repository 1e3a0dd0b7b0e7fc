"""The day of a build: from what the package says of itself, else reckoned from the build number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

from appliance.engines.values import EngineKind

_KNOWN = (
    (2_793, date(2024, 5, 6)), (5_857, date(2025, 7, 10)), (7_045, date(2025, 11, 13)),
    (7_551, date(2025, 12, 27)), (10_107, date(2026, 7, 24)), (10_298, date(2026, 8, 7)),
    (10_434, date(2026, 8, 14)), (11_549, date(2026, 10, 10)),
)  # fmt: skip
"""llama.cpp's build numbers and the days on which they were released, from release pages and packages."""
_LLAMA_CPP_PYTHON = {"0.3.36": date(2026, 10, 1)}
"""The llama.cpp that a release of that package holds."""
_LEAST = 1_000
"""Lower numbers are those of repackaged binaries, and mean nothing."""
_STATED = re.compile(r'"date": "(\d{4}-\d{2}-\d{2})T')
_VERSION_FILE = 4_096


@dataclass(frozen=True, slots=True)
class Day:
    """A day, and whether it is only reckoned."""

    day: str
    """`2026-10-10`."""
    about: bool


def build_number(kind: EngineKind, version: str) -> int | None:
    """llama.cpp's build number in a version; None where it holds none.

    `10434 (abc)`, `b10434`, `0.8.0 (build 11800, commit abc)`, and packages: `0.10434.0`, `2026.10.11549`.
    """
    if kind == "llama-cpp-python":
        return None
    if kind == "llama-server":
        found = re.match(r"(?:version: )?b?(\d{4,6})\b(?!\.)", version) or re.search(
            r"\(build (\d{4,6})\b", version
        )
        found = found or re.match(r"0\.(\d{4,6})\.", version)
    else:
        found = re.match(r"\d{4}\.\d{1,2}\.(\d{4,6})\b", version)
    number = int(found[1]) if found else 0
    return number if number >= _LEAST else None


def day_of(kind: EngineKind, version: str, package: Path | None = None) -> Day | None:
    """The day of a build; None when nothing tells. `package` is the folder of a Python package."""
    stated = _stated(package) if package is not None else None
    if stated is not None:
        return Day(stated, about=False)
    if kind == "llama-cpp-python":
        day = _LLAMA_CPP_PYTHON.get(version)
        return None if day is None else Day(day.isoformat(), about=True)
    number = build_number(kind, version)
    day = None if number is None else reckoned(number)
    return None if day is None else Day(day.isoformat(), about=True)


def reckoned(number: int) -> date | None:
    """Between two known builds as if they came evenly; None before the first and after the last.

    A known one is that day. Builds come five to twenty a day, so the error stays within a few weeks.
    """
    for (low, first), (high, last) in pairwise(_KNOWN):
        if low <= number <= high:
            share = (number - low) / (high - low)
            return first + timedelta(days=round(share * (last - first).days))
    return None


def _stated(package: Path) -> str | None:
    """What `_version.py` says, as versioneer writes it."""
    try:
        with (package / "_version.py").open(encoding="utf-8", errors="replace") as file:
            found = _STATED.search(file.read(_VERSION_FILE))
    except OSError:
        return None
    return found[1] if found else None
