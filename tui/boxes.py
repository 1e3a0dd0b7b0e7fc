"""The contents of the help and notice boxes, made from the action table and the view."""

from __future__ import annotations

from appliance.client import StatusSnapshot
from tui import glyphs
from tui.actions import ACTIONS, Scope
from tui.lines import Line, Span, line, wrap_line
from tui.state import View
from tui.views.notes import note_lines

_GLYPHS = (
    (glyphs.READY, "ready"), (glyphs.BUSY, "starting or loading"), (glyphs.STOPPED, "stopped or absent"),
    (glyphs.FAILED, "failed"), (glyphs.DONE, "done, measured"), ("~", "estimated"),
    (glyphs.WARNING, "look at this"),
)  # fmt: skip


def help_lines(width: int, scope: Scope = "dash") -> tuple[Line, ...]:
    """The keys of a screen with one sentence each, then the glyphs, in rows of `width` columns."""
    here = [action for action in ACTIONS if action.scope in (scope, "app")]
    keys = [line(Span(f"{a.key_word:<7}", "accent"), a.help) for a in here]
    keys.append(line(Span(f"{'esc':<7}", "accent"), "Back, or close this box."))
    signs = [line(Span(f"{glyph:<7}", "accent"), words) for glyph, words in _GLYPHS]
    return tuple(row for one in (*keys, (), *signs) for row in wrap_line(one, width, indent=7))


def notice_lines(view: View, width: int) -> tuple[Line, ...]:
    """What stands now and what to do about it, then what happened, newest first; rows fit `width` columns."""
    notes = view.snapshot.notes if view.snapshot else ()
    said = [one for note in notes for one in note_lines(view, note) if one]
    now = [row for one in said for row in wrap_line(one, width, indent=2)]
    happened = [
        line(Span(f"{view.clock(event.at)}  ", "muted"), Span(event.text, event.tone))
        for event in view.events
    ]
    past = [row for one in happened for row in wrap_line(one, width, indent=10)]
    none = [line(Span("Nothing to report.", "muted"))]
    return (*now, *([()] if now and past else []), *past) if now or past else tuple(none)


def at_stake(shot: StatusSnapshot | None) -> str | None:
    """What stopping the engine would do to requests; None while it runs none.

    Requests that run on a remote go on.
    """
    if shot is None:
        return None
    local = sum(row.route == "local" for row in shot.running)
    running = local if shot.queue.running is None else shot.queue.running
    waiting = shot.queue.waiting or 0
    if not running:
        return None
    held = f" {_requests(waiting, 'waiting')} would have to wait longer, or go elsewhere." if waiting else ""
    return f"{_requests(running, 'running')} would be cut off.{held}"


def at_stake_of(shot: StatusSnapshot | None, ref: str) -> str | None:
    """The same for one model. A daemon that does not count per model is taken to mean this one."""
    row = shot.engine_of(ref) if shot is not None else None
    if row is None or row.running is None:
        return at_stake(shot) if row is not None else None
    if not row.running:
        return None
    waiting = row.queued or 0
    held = f" {_requests(waiting, 'waiting')} would have to wait longer, or go elsewhere." if waiting else ""
    return f"{_requests(row.running, 'running')} of {ref} would be cut off.{held}"


def _requests(count: int, kind: str) -> str:
    return f"{count} {kind} request{'s' if count != 1 else ''}"
