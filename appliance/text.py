"""Cleaning of foreign text (model names, logs, remote errors) before it reaches a terminal or a log.

Escape sequences pass straight through terminal widgets, so text written by strangers could drive
the terminal. The cleaning is per character and without state: a sequence split over two pieces can't slip
through.
"""

from __future__ import annotations

import sys
import unicodedata

_KEPT = {"\n", "\t"}
_BIDI_AND_BREAKS = {
    *map(chr, (0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF)),
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2066, 0x206A)),
}


class _Dropped(dict[int, int | None]):
    """A translation table that judges a character the first time it is seen."""

    def __missing__(self, ordinal: int) -> int | None:
        char = chr(ordinal)
        dropped = char in _BIDI_AND_BREAKS or (
            char not in _KEPT and unicodedata.category(char) in ("Cc", "Cs")
        )
        keep = None if dropped else ordinal
        if ordinal <= sys.maxunicode and len(self) < 65_536:
            self[ordinal] = keep
        return keep


_TABLE = _Dropped()


def clean(foreign: str) -> str:
    """Drop control characters (but newline and tab), lone surrogates and bidirectional controls."""
    return foreign.translate(_TABLE)


def clean_line(foreign: str, limit: int = 2_000) -> str:
    """One cleaned line: newlines and tabs become spaces, and at most `limit` characters stay."""
    line = clean(foreign).replace("\n", " ").replace("\t", " ").strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def decode(raw: bytes) -> str:
    """Bytes of a foreign process as cleaned text; bytes that are not UTF-8 become replacement characters."""
    return clean(raw.decode("utf-8", errors="replace"))
