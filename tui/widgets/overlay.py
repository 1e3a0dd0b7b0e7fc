"""Boxes over a screen: help, the list of notices, and questions. Escape always closes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.lines import Line, Span, line, wrap_line
from tui.widgets.content import content_of

_SHARE = 0.96
"""Of the screen's columns, as `max-width` of the box in `styles.tcss` says."""
_AROUND = 8
"""Columns of the box's padding and scroll bar."""
_MIN_COLUMNS = 20


class Overlay(ModalScreen[bool]):
    """Lines in a box, wrapped for it, which scrolls. Closes with False on escape, `q` and its own key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,n", "close", "Close", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown,space", "move(10)", show=False),
    ]

    def __init__(self, title: str, lines: Callable[[int], tuple[Line, ...]], *, ascii_only: bool) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._ascii_only = ascii_only

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box", can_focus=False):
            yield Static(self._content(), markup=False)

    def _content(self) -> Content:
        room = max(_MIN_COLUMNS, int(self.app.size.width * _SHARE) - _AROUND)
        lines = (line(Span(self._title, "strong")), (), *self._lines(room))
        return content_of(lines, ascii_only=self._ascii_only)

    def on_resize(self, event: Resize) -> None:
        """Wrap again."""
        self.query_one(Static).update(self._content())

    def action_close(self) -> None:
        """Back to the screen below."""
        self.dismiss(False)

    def action_move(self, rows: int) -> None:
        """Scroll."""
        self.query_one("#box", VerticalScroll).scroll_relative(y=rows, animate=False)


class Question(Overlay):
    """A yes-or-no question; `y` or enter is yes, everything else no."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y,enter", "agree", "Yes", show=False)]

    def __init__(self, title: str, detail: str, *, ascii_only: bool) -> None:
        keys = line(Span("y", "accent"), "  yes     ", Span("n", "accent"), "  no")
        super().__init__(
            title, lambda width: (*wrap_line(line(detail), width), (), keys), ascii_only=ascii_only
        )

    def action_agree(self) -> None:
        """Yes."""
        self.dismiss(True)
