"""Sizes and durations as people write and read them. Inside the code: bytes (int) and seconds (float)."""

from __future__ import annotations

import re
from fractions import Fraction

MIB = 1 << 20
GIB = 1 << 30

_SIZE_UNITS = {
    "": 1, "b": 1, "kib": 1 << 10, "mib": MIB, "gib": GIB, "tib": 1 << 40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def _split(text: str, kind: str, example: str) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a {kind}; write it like {example}")
    return Fraction(match[1]), match[2].lower()


def parse_size(text: str) -> int:
    """`512MiB` -> bytes. Raises ValueError with an example when it can't be read."""
    number, unit = _split(text, "size", "512MiB")
    if unit not in _SIZE_UNITS:
        raise ValueError(f"{text!r} has an unknown unit; write it like 512MiB or 8GiB")
    return int(number * _SIZE_UNITS[unit])


def parse_duration(text: str) -> float:
    """`30m` -> seconds. Raises ValueError with an example when it can't be read."""
    number, unit = _split(text, "duration", "30m")
    if unit not in _DURATION_UNITS:
        raise ValueError(f"{text!r} has an unknown unit; write it like 500ms, 8s, 30m or 2h")
    return float(number) * _DURATION_UNITS[unit]


def write_size(n_bytes: int) -> str:
    """Bytes in the form that `parse_size` reads, without loss: `512MiB`."""
    for limit, unit in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if n_bytes and n_bytes % limit == 0:
            return f"{n_bytes // limit}{unit}"
    return f"{n_bytes}B"


def write_duration(seconds: float) -> str:
    """Seconds in the form that `parse_duration` reads: `30m`, `500ms`."""
    for limit, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if seconds and seconds % limit == 0:
            return f"{seconds / limit:.0f}{unit}"
    if seconds == 0:
        return "0s"
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.3f}".rstrip("0") + "s"


def size(n_bytes: int | None) -> str:
    """Bytes in GiB, MiB or KiB; unknown is `n/a`."""
    if n_bytes is None:
        return "n/a"
    for limit, unit, digits in ((GIB, "GiB", 2), (MIB, "MiB", 1), (1 << 10, "KiB", 0)):
        if abs(n_bytes) >= limit:
            return f"{n_bytes / limit:.{digits}f} {unit}"
    return f"{n_bytes} B"


def mib(n_bytes: int | None) -> str:
    """Bytes in whole MiB, for tables whose numbers must add up."""
    return "n/a" if n_bytes is None else f"{n_bytes / MIB:.0f} MiB"


def duration(seconds: float | None) -> str:
    """Seconds as `350 ms`, `8.2 s`, `3 m 24 s` or `2 h 14 m`; unknown is `n/a`."""
    if seconds is None:
        return "n/a"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m"


def about(seconds: float | None) -> str:
    """Seconds in one unit, for times that need no more: `40 s`, `12 min`, `3 h`, `2 d`; unknown is `n/a`."""
    if seconds is None:
        return "n/a"
    for limit, unit_s, unit in ((90, 1, "s"), (5_400, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{max(0.0, seconds) / unit_s:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
