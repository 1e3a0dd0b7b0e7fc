"""The line of a key in a TOML text, for errors: a plain scan, since the parser keeps no positions."""

from __future__ import annotations

import re

Location = tuple[int | str, ...]
_HEADER = re.compile(r"\s*\[\[?[^={]+\]\s*(#|$)")


def line_of(text: str, location: Location) -> int | None:
    """The line (from 1) where `location` stands, or the nearest table above it; None when there is none.

    Tables are found by their header, then the key in it, then the n-th `{` after that.
    """
    lines = text.splitlines()
    at, inside = _table_of(lines, location)
    for part in inside:
        start = at if at is not None else 0
        headers = (i for i in range(start + 1, len(lines)) if _HEADER.match(lines[i]))
        section = range(start, next(headers, len(lines)))
        if isinstance(part, int):
            braces = [i for i in section for _ in range(lines[i].count("{"))]
            at = braces[part] if part < len(braces) else at
        else:
            key = re.compile(rf"(?:^\s*|[{{,]\s*){_key(part)}\s*=")
            at = next((i for i in section if key.search(lines[i])), at)
    return None if at is None else at + 1


def _table_of(lines: list[str], location: Location) -> tuple[int | None, Location]:
    """The header of the innermost table, and what of `location` is inside it."""
    if len(location) > 3 and location[2] == "variants" and isinstance(location[3], int):
        found = _headers(lines, rf"models\s*\.\s*{_key(location[1])}\s*\.\s*variants")
        if location[3] < len(found):
            return found[location[3]], location[4:]
    for depth in (2, 1):
        if len(location) >= depth:
            path = r"\s*\.\s*".join(_key(part) for part in location[:depth])
            found = _headers(lines, path + (r"\b.*" if depth == 1 else ""))
            if found:
                return found[0], location[depth:]
    return None, location


def _headers(lines: list[str], path: str) -> list[int]:
    header = re.compile(rf"\s*\[\[?\s*{path}\s*\]")
    return [number for number, line in enumerate(lines) if header.match(line)]


def _key(part: int | str) -> str:
    word = re.escape(str(part))
    return f"(?:\"{word}\"|'{word}'|{word})"
