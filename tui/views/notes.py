"""The Notes panel: what the user should know about this machine, and what to do about it."""

from __future__ import annotations

from appliance.client import NoteRow
from tui.frame import PanelView
from tui.lines import Line, Span, line
from tui.state import View
from tui.words import ago


def notes_panel(view: View, compact: bool) -> PanelView:
    """Two lines per note, one in the short form."""
    notes = view.snapshot.notes if view.snapshot else ()
    rows = tuple(row for note in notes for row in note_rows(view, note, short=compact))
    return PanelView("Notes", rows, line("n lists all"))


def note_rows(view: View, note: NoteRow, *, short: bool = False) -> tuple[Line, ...]:
    """A note, what to do, and for how long it has stood."""
    head = line(Span(f"! {note.code}", "warn"), f"  {note.detail or ''}")
    if short:
        return (head,)
    since = "" if note.since is None else f"  (for {ago(note.since, view.now)})"
    todo = (line("  ", note.todo),) if note.todo else ()
    return (line(*head, Span(since, "muted")), *todo)
