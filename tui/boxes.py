"""The contents of the help and notice boxes, made from the action table and the view."""

from __future__ import annotations

from tui import glyphs
from tui.actions import ACTIONS
from tui.lines import Line, Span, line
from tui.state import View
from tui.views.notes import note_rows

_GLYPHS = (
    (glyphs.READY, "ready"), (glyphs.BUSY, "starting or loading"), (glyphs.STOPPED, "stopped or absent"),
    (glyphs.FAILED, "failed"), (glyphs.DONE, "done, measured"), ("~", "estimated"),
    (glyphs.WARNING, "look at this"),
)  # fmt: skip


def help_lines() -> tuple[Line, ...]:
    """All keys with one sentence each, then the glyphs."""
    keys = [line(Span(f"{a.key_word:<7}", "accent"), a.help) for a in ACTIONS]
    keys.append(line(Span(f"{'esc':<7}", "accent"), "Back, or close this box."))
    signs = [line(Span(f"{glyph:<7}", "accent"), words) for glyph, words in _GLYPHS]
    return (*keys, (), *signs)


def notice_lines(view: View) -> tuple[Line, ...]:
    """What stands now and what to do about it, then what happened, newest first."""
    notes = view.snapshot.notes if view.snapshot else ()
    now = [row for note in notes for row in note_rows(view, note)]
    past = [
        line(Span(f"{view.clock(event.at)}  ", "muted"), Span(event.text, event.tone))
        for event in view.events
    ]
    none = [line(Span("Nothing to report.", "muted"))]
    return (*now, *([()] if now and past else []), *past) if now or past else tuple(none)
