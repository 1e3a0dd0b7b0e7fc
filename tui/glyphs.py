"""Glyphs for states and graphs, and their ASCII forms.

Screens are made with Unicode glyphs. In ASCII mode the finished text is translated at the widget's edge, so
no screen has two versions, and nothing outside ASCII is written whoever wrote the text.
"""

from __future__ import annotations

from tui.lines import Span, Tone, cells

BUSY, READY, STOPPED, FAILED, DONE, SELECTED, WARNING, NONE = "◐", "●", "○", "✖", "✓", "▸", "!", "–"
PAUSED = "‖"

_STATES: dict[str, tuple[str, Tone]] = {
    "ready": (READY, "ok"),
    "busy": (READY, "ok"),
    "up": (READY, "ok"),
    "cool": (READY, "ok"),
    "starting": (BUSY, "accent"),
    "loading": (BUSY, "accent"),
    "stopping": (BUSY, "accent"),
    "connecting": (BUSY, "accent"),
    "warm": (WARNING, "warn"),
    "throttled": (WARNING, "warn"),
    "failed": (FAILED, "bad"),
    "critical": (FAILED, "bad"),
    "down": (FAILED, "warn"),
}

_ASCII = str.maketrans(
    {
        "●": "*", "◐": "~", "○": "o", "✖": "x", "✓": "v", "▸": ">", "·": "-", "–": "-", "—": "-", "−": "-",
        "×": "x", "°": " ", "…": ".", "→": ">", "↓": "v", "’": "'", "‖": "=",
        "█": "#", "▓": "%", "▒": "=", "░": ".",
        "▁": "_", "▂": ".", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "#",
        "╭": "+", "╮": "+", "╰": "+", "╯": "+", "─": "-", "│": "|",
    }
)  # fmt: skip


def mark(state: str | None, word: str | None = None) -> Span:
    """Glyph and word for a state; an unknown state is shown as its own word."""
    if not state or state == "unknown":
        return Span(word or "n/a", "muted")
    glyph, tone = _STATES.get(state, (STOPPED, "muted"))
    return Span(f"{glyph} {word or state}", tone)


def to_ascii(text: str) -> str:
    """`text` with as many columns as before, in ASCII only."""
    if text.isascii():
        return text
    translated = text.translate(_ASCII)
    return "".join(char if char.isascii() else "?" * cells(char) for char in translated)
