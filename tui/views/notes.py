"""The Notes panel: what the user should know about this machine, and what to do about it."""

from __future__ import annotations

from appliance.client import NoteRow
from tui.frame import PanelView
from tui.lines import Line, Span, line, wrap_line
from tui.state import View
from tui.words import ago

_MOST_HEAD, _MOST_REMEDY = 2, 3
"""Rows of one note in the panel; the box has no limit."""


def notes_panel(view: View, width: int, compact: bool) -> PanelView:
    """A note and what to do in a few rows of `width` columns, one row in the short form."""
    notes = view.snapshot.notes if view.snapshot else ()
    rows: list[Line] = []
    for note in notes:
        head, todo = note_lines(view, note)
        if compact:
            rows.append(line(*head[:2]))
            continue
        rows += wrap_line(head, width, most=_MOST_HEAD, indent=2)
        rows += wrap_line(todo, width, most=_MOST_REMEDY, indent=2) if todo else ()
    return PanelView("Notes", tuple(rows), line("n lists all"))


def note_lines(view: View, note: NoteRow) -> tuple[Line, Line]:
    """A note with how long it has stood, and what to do; the second is empty when nothing can be done."""
    since = view.standing(note)
    age = "" if since is None else f"  (for {ago(since, view.moment)})"
    head = line(Span(f"! {note.code}", "warn"), f"  {note.detail or ''}", Span(age, "muted"))
    return head, line("  ", note.todo) if note.todo else ()
