"""Labelled parts on as few lines as they need, for a terminal of 80 characters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

WIDTH = 80
"""Characters in a line about a model or the machine, so that it stands on one line of any terminal."""
INDENT = 10


def packed(label: str, parts: Sequence[str]) -> Iterator[str]:
    """The parts with marks between, on as few lines as they need; a part is never broken."""
    lead, line = label.ljust(INDENT), ""
    for part in filter(None, parts):
        longer = f"{line} · {part}" if line else part
        if line and INDENT + len(longer) > WIDTH:
            yield lead + line
            lead, longer = " " * INDENT, part
        line = longer
    if line:
        yield lead + line


def wrapped(text: str, label: str = "") -> list[str]:
    """Sentences, wrapped at words below their label."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=label.ljust(INDENT), subsequent_indent=" " * INDENT,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
