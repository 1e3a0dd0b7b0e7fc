"""A framed panel: title at the left of the border, state or scope at the right."""

from __future__ import annotations

from collections.abc import Callable

from tui.frame import PanelView, framed
from tui.lines import Line
from tui.state import View
from tui.widgets.rows import Rows

Build = Callable[[View, int], PanelView]
"""(view, columns inside the frame) -> the panel's content."""

FRAME_COLUMNS = 4
FRAME_ROWS = 2


class Panel(Rows):
    """One panel of a screen."""

    def __init__(self, build: Build, *, id: str, ascii_only: bool) -> None:  # noqa: A002 (Textual's name)
        super().__init__(self._frame, id=id, ascii_only=ascii_only)
        self._build = build

    def wanted_rows(self, view: View, width: int) -> int:
        """Rows with frame for all lines at `width` columns, 0 when there is nothing to show."""
        lines = self._build(view, width - FRAME_COLUMNS).lines
        return len(lines) + FRAME_ROWS if lines else 0

    def _frame(self, view: View, width: int, height: int) -> tuple[Line, ...]:
        return framed(self._build(view, width - FRAME_COLUMNS), width, height, dimmed=view.dimmed)
