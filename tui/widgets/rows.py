"""A widget that draws lines made from a view for its own size: header, notice, footer, base of panels."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.widget import Widget

from tui.lines import Line
from tui.state import View
from tui.widgets.content import content_of

Draw = Callable[[View, int, int], tuple[Line, ...]]
"""(view, width, height) -> exactly that many lines."""


class Rows(Widget):
    """Draws `draw(view, width, height)`, and only when its lines have changed."""

    ALLOW_SELECT = False

    def __init__(self, draw: Draw, *, id: str, ascii_only: bool) -> None:  # noqa: A002 (Textual's name)
        super().__init__(id=id, markup=False)
        self._draw = draw
        self._ascii_only = ascii_only
        self._view: View | None = None
        self._lines: tuple[Line, ...] = ()

    def show(self, view: View) -> None:
        """Take a new view."""
        self._view = view
        lines = self._current()
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render(self) -> Content:
        """Lines for the present size."""
        self._lines = self._current()
        return content_of(self._lines, ascii_only=self._ascii_only)

    def _current(self) -> tuple[Line, ...]:
        if self._view is None or not self.size.width or not self.size.height:
            return ()
        return self._draw(self._view, self.size.width, self.size.height)
