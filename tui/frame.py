"""Panels as text: a frame with a title at the left of its border and a state or scope at the right."""

from __future__ import annotations

from dataclasses import dataclass

from tui.lines import Line, Span, Tone, crop, fit_line, plain, width_of


@dataclass(frozen=True, slots=True)
class PanelView:
    """What a panel shows. `lines` that do not fit are left out by the frame, from the end."""

    title: str
    lines: tuple[Line, ...]
    scope: Line = ()
    border: Tone = "muted"


def framed(view: PanelView, width: int, height: int, *, dimmed: bool = False) -> tuple[Line, ...]:
    """The panel as exactly `height` lines of `width` columns. `dimmed` takes all tones away (old data)."""
    if width < 6 or height < 2:
        return tuple((Span(" " * max(0, width)),) for _ in range(height))
    inner = width - 4
    edge = Span("│", view.border)
    body = [
        (edge, Span(" "), *fit_line(view.lines[row] if row < len(view.lines) else (), inner), Span(" "), edge)
        for row in range(height - 2)
    ]
    lines = (_top(view, width), *body, (Span("╰" + "─" * (width - 2) + "╯", view.border),))
    return tuple(_dim(one) for one in lines) if dimmed else lines


def _top(view: PanelView, width: int) -> Line:
    title = crop(view.title, width - 6)
    start = (Span("╭─ ", view.border), Span(title, "strong"), Span(" ", view.border))
    room = width - width_of(start) - 1
    scope = (Span(" ", view.border), *view.scope, Span(" ─", view.border)) if view.scope else ()
    if width_of(scope) > room - 1:
        scope = ()
    rule = Span("─" * (room - width_of(scope)), view.border)
    return (*start, rule, *scope, Span("╮", view.border))


def _dim(one: Line) -> Line:
    return (Span(plain(one), "muted"),)
