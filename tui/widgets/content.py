"""From lines of spans to Textual content. The only place where tones become styles and ASCII mode is applied.

Text never passes through markup: spans are assembled as literal text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from textual.content import Content

from tui.glyphs import to_ascii
from tui.lines import Line, Tone

_STYLES: Mapping[Tone, str] = {
    "plain": "",
    "muted": "$foreground-muted",
    "strong": "bold",
    "ok": "$text-success",
    "warn": "$text-warning",
    "bad": "bold $text-error",
    "accent": "$text-primary",
}


def content_of(lines: Iterable[Line], *, ascii_only: bool) -> Content:
    """The lines as one piece of content."""
    return Content("\n").join(_one(line, ascii_only) for line in lines)


def _one(line: Line, ascii_only: bool) -> Content:
    return Content.assemble(
        *((to_ascii(s.text) if ascii_only else s.text, _STYLES[s.tone]) for s in line if s.text)
    )
